//! TCP (RFC 9293).

use crate::ParseError;
use crate::bytes::{slice, u8_at, u16_at, u32_at};

/// Bytes of a header without options.
pub const HEADER: usize = 20;

/// A segment.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let length = buffer.as_ref().len();
        if length < HEADER {
            return Err(ParseError::TruncatedTransport);
        }
        let packet = Self(buffer);
        if packet.header_len() < HEADER || packet.header_len() > length {
            return Err(ParseError::BadDataOffset);
        }
        Ok(packet)
    }

    pub fn source_port(&self) -> u16 {
        u16_at(self.0.as_ref(), 0)
    }

    pub fn destination_port(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    pub fn sequence(&self) -> u32 {
        u32_at(self.0.as_ref(), 4)
    }

    pub fn acknowledgement(&self) -> u32 {
        u32_at(self.0.as_ref(), 8)
    }

    /// Bytes of the header with its options.
    pub fn header_len(&self) -> usize {
        usize::from(u8_at(self.0.as_ref(), 12) >> 4) * 4
    }

    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, from the highest bit down.
    pub fn flags(&self) -> u8 {
        u8_at(self.0.as_ref(), 13)
    }

    pub fn window(&self) -> u16 {
        u16_at(self.0.as_ref(), 14)
    }

    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 16)
    }

    pub fn options(&self) -> &[u8] {
        slice(self.0.as_ref(), HEADER, self.header_len())
    }

    pub fn payload(&self) -> &[u8] {
        slice(self.0.as_ref(), self.header_len(), self.0.as_ref().len())
    }
}
