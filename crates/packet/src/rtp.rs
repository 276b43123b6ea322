//! RTP (RFC 3550), with header extension and padding; packets whose lengths lie are refused.

use crate::bytes::{put, slice, u8_at, u16_at, u32_at};

/// Bytes of a header without contributing sources and extension.
pub const HEADER: usize = 12;

/// Why a payload is not RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtpError {
    #[error("shorter than an RTP header")]
    Truncated,
    #[error("RTP version is not 2")]
    Version,
    #[error("contributing sources reach beyond the packet")]
    Sources,
    #[error("the header extension reaches beyond the packet")]
    Extension,
    #[error("padding is empty or reaches into the header")]
    Padding,
}

/// An RTP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    pub fn new_checked(buffer: T) -> Result<Self, RtpError> {
        let length = buffer.as_ref().len();
        if length < HEADER {
            return Err(RtpError::Truncated);
        }
        let packet = Self(buffer);
        if packet.version() != 2 {
            return Err(RtpError::Version);
        }
        let sources = packet.sources_end();
        if sources > length {
            return Err(RtpError::Sources);
        }
        if packet.has_extension() && (sources + 4 > length || packet.header_len() > length) {
            return Err(RtpError::Extension);
        }
        let room = length - packet.header_len();
        if packet.has_padding() && !(1..=room).contains(&packet.padding_len()) {
            return Err(RtpError::Padding);
        }
        Ok(packet)
    }

    pub fn version(&self) -> u8 {
        u8_at(self.0.as_ref(), 0) >> 6
    }

    pub fn marker(&self) -> bool {
        u8_at(self.0.as_ref(), 1) & 0x80 != 0
    }

    pub fn payload_type(&self) -> u8 {
        u8_at(self.0.as_ref(), 1) & 0x7f
    }

    pub fn sequence(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    pub fn timestamp(&self) -> u32 {
        u32_at(self.0.as_ref(), 4)
    }

    pub fn ssrc(&self) -> u32 {
        u32_at(self.0.as_ref(), 8)
    }

    /// The contributing sources (CSRC).
    pub fn sources(&self) -> impl Iterator<Item = u32> {
        let list = slice(self.0.as_ref(), HEADER, self.sources_end());
        list.chunks_exact(4).map(|source| u32_at(source, 0))
    }

    /// The header extension's profile word and data.
    pub fn extension(&self) -> Option<(u16, &[u8])> {
        let buffer = self.0.as_ref();
        let at = self.sources_end();
        self.has_extension().then(|| {
            let data = slice(buffer, at + 4, self.header_len());
            (u16_at(buffer, at), data)
        })
    }

    /// Bytes before the payload.
    pub fn header_len(&self) -> usize {
        let sources = self.sources_end();
        if !self.has_extension() {
            return sources;
        }
        sources + 4 + usize::from(u16_at(self.0.as_ref(), sources + 2)) * 4
    }

    /// Without padding.
    pub fn payload(&self) -> &[u8] {
        let padding = if self.has_padding() {
            self.padding_len()
        } else {
            0
        };
        let buffer = self.0.as_ref();
        slice(buffer, self.header_len(), buffer.len() - padding)
    }

    fn has_padding(&self) -> bool {
        u8_at(self.0.as_ref(), 0) & 0x20 != 0
    }

    fn has_extension(&self) -> bool {
        u8_at(self.0.as_ref(), 0) & 0x10 != 0
    }

    fn sources_end(&self) -> usize {
        HEADER + usize::from(u8_at(self.0.as_ref(), 0) & 0xf) * 4
    }

    fn padding_len(&self) -> usize {
        self.0.as_ref().last().copied().unwrap_or(0).into()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    pub fn set_marker(&mut self, marker: bool) {
        let byte = self.payload_type() | if marker { 0x80 } else { 0 };
        put(self.0.as_mut(), 1, &[byte]);
    }

    /// The low seven bits of `payload_type`.
    pub fn set_payload_type(&mut self, payload_type: u8) {
        let marker = u8_at(self.0.as_ref(), 1) & 0x80;
        put(self.0.as_mut(), 1, &[marker | payload_type & 0x7f]);
    }

    pub fn set_sequence(&mut self, sequence: u16) {
        put(self.0.as_mut(), 2, &sequence.to_be_bytes());
    }

    pub fn set_timestamp(&mut self, timestamp: u32) {
        put(self.0.as_mut(), 4, &timestamp.to_be_bytes());
    }

    pub fn set_ssrc(&mut self, ssrc: u32) {
        put(self.0.as_mut(), 8, &ssrc.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sources, an extension of one word, three bytes of payload, two of padding.
    const FULL: [u8; 33] = [
        0xb2, 0xe0, 0x12, 0x34, 0, 0, 0, 9, 0, 0, 0x1f, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2, 0xbe, 0xde,
        0, 1, 0x10, 7, 0, 0, b'a', b'b', b'c', 0, 2,
    ];

    #[test]
    fn every_part_is_found() {
        let mut packet = Packet::new_checked(FULL).unwrap();
        assert!(packet.marker());
        assert_eq!(packet.payload_type(), 96);
        assert_eq!(packet.sequence(), 0x1234);
        assert_eq!(packet.timestamp(), 9);
        assert_eq!(packet.ssrc(), 0x1f2e);
        assert_eq!(packet.sources().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(packet.extension(), Some((0xbede, &[0x10, 7, 0, 0][..])));
        assert_eq!(packet.header_len(), 28);
        assert_eq!(packet.payload(), b"abc");

        packet.set_marker(false);
        packet.set_payload_type(111);
        assert!(!packet.marker());
        assert_eq!(packet.payload_type(), 111);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let refused = |bytes: &[u8]| Packet::new_checked(bytes).unwrap_err();
        assert_eq!(refused(&FULL[..11]), RtpError::Truncated);
        assert_eq!(refused(&[0; 12]), RtpError::Version);
        assert_eq!(refused(&FULL[..19]), RtpError::Sources);
        assert_eq!(refused(&FULL[..27]), RtpError::Extension);
        let mut padded = FULL;
        padded[32] = 6;
        assert_eq!(refused(&padded), RtpError::Padding);
        padded[32] = 0;
        assert_eq!(refused(&padded), RtpError::Padding);
    }
}
