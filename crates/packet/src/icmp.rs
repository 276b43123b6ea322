//! ICMP (RFC 792) and ICMPv6 (RFC 4443), whose first eight bytes are alike.

use crate::ParseError;
use crate::bytes::{array, slice, u8_at, u16_at};

/// Bytes of the header.
pub const HEADER: usize = 8;

/// A message of either version.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        match buffer.as_ref().len() {
            0..HEADER => Err(ParseError::TruncatedTransport),
            _ => Ok(Self(buffer)),
        }
    }

    pub fn kind(&self) -> u8 {
        u8_at(self.0.as_ref(), 0)
    }

    pub fn code(&self) -> u8 {
        u8_at(self.0.as_ref(), 1)
    }

    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    /// What the type makes of the second word: an echo's identifier and sequence, an MTU.
    pub fn rest(&self) -> [u8; 4] {
        array(self.0.as_ref(), 4)
    }

    /// After the header: an echo's data, or the packet an error is about.
    pub fn payload(&self) -> &[u8] {
        slice(self.0.as_ref(), HEADER, self.0.as_ref().len())
    }
}
