//! Network-order reads and writes that a checked view makes inside its header; outside the buffer
//! they read zero and write nothing, so that no accessor can panic.

pub(crate) fn array<const N: usize>(buffer: &[u8], at: usize) -> [u8; N] {
    let bytes = at.checked_add(N).and_then(|end| buffer.get(at..end));
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or([0; N])
}

pub(crate) fn u8_at(buffer: &[u8], at: usize) -> u8 {
    u8::from_be_bytes(array(buffer, at))
}

pub(crate) fn u16_at(buffer: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(buffer, at))
}

pub(crate) fn u32_at(buffer: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(buffer, at))
}

pub(crate) fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    let range = at..at.saturating_add(bytes.len());
    if let Some(place) = buffer.get_mut(range) {
        place.copy_from_slice(bytes);
    }
}

/// The bytes of a range, or none when it lies outside.
pub(crate) fn slice(buffer: &[u8], from: usize, to: usize) -> &[u8] {
    buffer.get(from..to).unwrap_or(&[])
}

pub(crate) fn slice_mut(buffer: &mut [u8], from: usize, to: usize) -> &mut [u8] {
    buffer.get_mut(from..to).unwrap_or(&mut [])
}
