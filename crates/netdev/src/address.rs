//! IP addresses of devices.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ifindex: u32,
    pub address: IpAddr,
    pub prefix_len: u8,
    /// Still waiting for the end of duplicate address detection: cannot be bound yet.
    pub tentative: bool,
}

pub(crate) fn message(ifindex: u32, address: IpAddr, prefix_len: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = ifindex;
    message.header.prefix_len = prefix_len;
    message.header.family = family(address);
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

pub(crate) fn read(message: &AddressMessage) -> Option<Address> {
    // IFA_LOCAL is the device's own address where it has a peer's in IFA_ADDRESS.
    let local = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(Address {
        ifindex: message.header.index,
        address: local.or(address)?,
        prefix_len: message.header.prefix_len,
        tentative: message.header.flags.contains(AddressHeaderFlags::Tentative),
    })
}
