//! Attributes in netlink messages, read in place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Flags in an attribute's type (`NLA_TYPE_MASK`).
const KIND: u16 = 0x3fff;

/// Types and values; what is cut short ends them.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(number16(rest)?);
        let kind = number16(rest.get(2..)?)? & KIND;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(super) fn number16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?))
}

pub(super) fn number32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// An address by its length.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_where_they_are_cut() {
        let mut bytes = vec![8, 0, 1, 0, 10, 0, 0, 1, 5, 0, 2, 0x80, 7, 0, 0, 0];
        let found: Vec<(u16, Vec<u8>)> = attributes(&bytes).map(|(k, v)| (k, v.into())).collect();
        assert_eq!(found, [(1, vec![10, 0, 0, 1]), (2, vec![7])]);
        bytes.truncate(12);
        assert_eq!(attributes(&bytes).count(), 1);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0, "shorter than itself");
        assert_eq!(attributes(&[0; 16]).count(), 0);
    }
}
