//! Ethernet frames and VLAN tags (IEEE 802.1Q, 802.1ad).

use crate::ParseError;
use crate::bytes::{array, put, slice, u16_at};
use crate::ethertype;

/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;
/// Bytes a VLAN tag adds.
pub const TAG: usize = 4;

/// A MAC address.
pub type Address = [u8; 6];

/// A frame without preamble and check sequence.
#[derive(Clone, Copy, Debug)]
pub struct Frame<T>(T);

impl<T: AsRef<[u8]>> Frame<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        match buffer.as_ref().len() {
            0..HEADER => Err(ParseError::TruncatedEthernet),
            _ => Ok(Self(buffer)),
        }
    }

    pub fn destination(&self) -> Address {
        array(self.0.as_ref(), 0)
    }

    pub fn source(&self) -> Address {
        array(self.0.as_ref(), 6)
    }

    /// Of the payload, or of the first tag.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.0.as_ref(), 12)
    }

    pub fn payload(&self) -> &[u8] {
        slice(self.0.as_ref(), HEADER, self.0.as_ref().len())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Frame<T> {
    pub fn set_destination(&mut self, address: Address) {
        put(self.0.as_mut(), 0, &address);
    }

    pub fn set_source(&mut self, address: Address) {
        put(self.0.as_mut(), 6, &address);
    }
}

/// A VLAN tag, from after its EtherType.
#[derive(Clone, Copy, Debug)]
pub struct VlanTag<T>(T);

impl<T: AsRef<[u8]>> VlanTag<T> {
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        match buffer.as_ref().len() {
            0..TAG => Err(ParseError::TruncatedVlan),
            _ => Ok(Self(buffer)),
        }
    }

    /// Priority, drop eligibility and VLAN id.
    pub fn control(&self) -> u16 {
        u16_at(self.0.as_ref(), 0)
    }

    pub fn id(&self) -> u16 {
        self.control() & 0x0fff
    }

    pub fn ethertype(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    pub fn payload(&self) -> &[u8] {
        slice(self.0.as_ref(), TAG, self.0.as_ref().len())
    }
}

/// Whether an EtherType says that a tag follows.
pub fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::QINQ)
}
