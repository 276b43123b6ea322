//! IPv4 (RFC 791).

use std::net::Ipv4Addr;

use crate::ParseError;
use crate::bytes::{array, put, slice, slice_mut, u8_at, u16_at};
use crate::checksum;

/// Bytes of a header without options.
pub const HEADER: usize = 20;

/// A packet; bytes after its total length are Ethernet padding and not part of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let length = buffer.as_ref().len();
        if length < HEADER {
            return Err(ParseError::TruncatedIp);
        }
        let packet = Self(buffer);
        if u8_at(packet.0.as_ref(), 0) >> 4 != 4 {
            return Err(ParseError::BadVersion);
        }
        let header = packet.header_len();
        if header < HEADER {
            return Err(ParseError::BadHeaderLength);
        }
        if packet.total_len() < header || packet.total_len() > length {
            return Err(ParseError::BadTotalLength);
        }
        Ok(packet)
    }

    /// Bytes of the header with its options.
    pub fn header_len(&self) -> usize {
        usize::from(u8_at(self.0.as_ref(), 0) & 0xf) * 4
    }

    /// DSCP and ECN.
    pub fn tos(&self) -> u8 {
        u8_at(self.0.as_ref(), 1)
    }

    /// Bytes of header and payload.
    pub fn total_len(&self) -> usize {
        u16_at(self.0.as_ref(), 2).into()
    }

    pub fn identification(&self) -> u16 {
        u16_at(self.0.as_ref(), 4)
    }

    pub fn dont_fragment(&self) -> bool {
        u16_at(self.0.as_ref(), 6) & 0x4000 != 0
    }

    pub fn more_fragments(&self) -> bool {
        u16_at(self.0.as_ref(), 6) & 0x2000 != 0
    }

    /// In bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(u16_at(self.0.as_ref(), 6) & 0x1fff) * 8
    }

    pub fn ttl(&self) -> u8 {
        u8_at(self.0.as_ref(), 8)
    }

    pub fn protocol(&self) -> u8 {
        u8_at(self.0.as_ref(), 9)
    }

    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 10)
    }

    pub fn source(&self) -> Ipv4Addr {
        array::<4>(self.0.as_ref(), 12).into()
    }

    pub fn destination(&self) -> Ipv4Addr {
        array::<4>(self.0.as_ref(), 16).into()
    }

    pub fn options(&self) -> &[u8] {
        slice(self.0.as_ref(), HEADER, self.header_len())
    }

    pub fn payload(&self) -> &[u8] {
        slice(self.0.as_ref(), self.header_len(), self.total_len())
    }

    /// Whether the header's checksum is right.
    pub fn verify_checksum(&self) -> bool {
        checksum::checksum(slice(self.0.as_ref(), 0, self.header_len())) == 0
    }
}

/// Setters leave the checksum to [`Packet::fill_checksum`].
impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    pub fn set_tos(&mut self, tos: u8) {
        put(self.0.as_mut(), 1, &[tos]);
    }

    pub fn set_identification(&mut self, identification: u16) {
        put(self.0.as_mut(), 4, &identification.to_be_bytes());
    }

    pub fn set_ttl(&mut self, ttl: u8) {
        put(self.0.as_mut(), 8, &[ttl]);
    }

    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0.as_mut(), 10, &checksum.to_be_bytes());
    }

    pub fn set_source(&mut self, address: Ipv4Addr) {
        put(self.0.as_mut(), 12, &address.octets());
    }

    pub fn set_destination(&mut self, address: Ipv4Addr) {
        put(self.0.as_mut(), 16, &address.octets());
    }

    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let header = slice(self.0.as_ref(), 0, self.header_len());
        self.set_checksum(checksum::checksum(header));
    }

    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.header_len(), self.total_len());
        slice_mut(self.0.as_mut(), from, to)
    }
}
