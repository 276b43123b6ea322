//! UDP (RFC 768).

use std::net::IpAddr;

use crate::ParseError;
use crate::bytes::{put, slice, slice_mut, u16_at};
use crate::checksum;

/// Bytes of the header.
pub const HEADER: usize = 8;

/// A datagram; bytes after its length are not part of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let length = buffer.as_ref().len();
        let packet = Self::new_fragment(buffer)?;
        if packet.len() > length {
            return Err(ParseError::BadUdpLength);
        }
        Ok(packet)
    }

    /// The first fragment of a datagram, whose length is the whole datagram's.
    pub fn new_fragment(buffer: T) -> Result<Self, ParseError> {
        if buffer.as_ref().len() < HEADER {
            return Err(ParseError::TruncatedTransport);
        }
        let packet = Self(buffer);
        if packet.len() < HEADER {
            return Err(ParseError::BadUdpLength);
        }
        Ok(packet)
    }

    pub fn source_port(&self) -> u16 {
        u16_at(self.0.as_ref(), 0)
    }

    pub fn destination_port(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    /// Bytes of header and payload, as the header says.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a header's length field is never zero"
    )]
    pub fn len(&self) -> usize {
        u16_at(self.0.as_ref(), 4).into()
    }

    /// Zero when the sender made none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 6)
    }

    pub fn payload(&self) -> &[u8] {
        let buffer = self.0.as_ref();
        slice(buffer, HEADER, self.len().min(buffer.len()))
    }

    /// Whether the checksum is right or absent.
    pub fn verify_checksum(&self, source: IpAddr, destination: IpAddr) -> bool {
        let datagram = slice(self.0.as_ref(), 0, self.len());
        self.checksum() == 0 || self.checksum() == checksum::udp(source, destination, datagram)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    pub fn set_source_port(&mut self, port: u16) {
        put(self.0.as_mut(), 0, &port.to_be_bytes());
    }

    pub fn set_destination_port(&mut self, port: u16) {
        put(self.0.as_mut(), 2, &port.to_be_bytes());
    }

    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0.as_mut(), 6, &checksum.to_be_bytes());
    }

    pub fn fill_checksum(&mut self, source: IpAddr, destination: IpAddr) {
        let datagram = slice(self.0.as_ref(), 0, self.len());
        self.set_checksum(checksum::udp(source, destination, datagram));
    }

    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = self.len().min(self.0.as_ref().len());
        slice_mut(self.0.as_mut(), HEADER, to)
    }
}
