//! Netlink attributes as nftables nests them.

/// The attributes in `bytes`, by type. Bytes that form no attribute end the sequence.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const HEADER: usize = 4;
    /// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const TYPE: u16 = 0x3fff;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        let value = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE, value))
    })
}

/// The first attribute of this type.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(at, _)| *at == kind)
        .map(|(_, value)| value)
}

/// A number in network byte order.
pub(crate) fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    let value = find(bytes, kind)?;
    Some(u32::from_be_bytes(*value.first_chunk()?))
}

/// A string, without the zero behind it.
pub(crate) fn string(bytes: &[u8], kind: u16) -> Option<String> {
    Some(text(find(bytes, kind)?))
}

/// A string, without the zero behind it.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

/// `NFTA_DATA_VALUE` within the attribute of this type.
pub(crate) fn data(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    const VALUE: u16 = 1;
    find(find(bytes, kind)?, VALUE)
}
