//! IP addresses of devices.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::Error;
use crate::netlink::{Change, Netlink};

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ifindex: u32,
    pub address: IpAddr,
    pub prefix_len: u8,
    /// Still waiting for the end of duplicate address detection: cannot be bound yet.
    pub tentative: bool,
}

impl Netlink {
    /// Every address of the namespace.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.dump(&request, "listing addresses")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => read(&message),
                _ => None,
            })
            .collect())
    }

    /// Gives devices their addresses, as (index, address, prefix length).
    ///
    /// Duplicate address detection is left out. Even so the kernel adds the local route of an IPv6
    /// address a moment later, and until `route_to` calls it local, packets to it are not accepted.
    pub fn add_addresses(&mut self, addresses: &[(u32, IpAddr, u8)]) -> Result<(), Error> {
        let changes = addresses
            .iter()
            .map(|&(ifindex, address, prefix_len)| Change {
                message: RouteNetlinkMessage::NewAddress(message(ifindex, address, prefix_len)),
                flags: NLM_F_CREATE | NLM_F_EXCL,
                action: format!("adding address {address}/{prefix_len} to interface {ifindex}"),
            })
            .collect();
        self.apply(changes)
    }

    /// Takes an address away.
    pub fn delete_address(
        &mut self,
        ifindex: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), Error> {
        self.apply(vec![Change {
            message: RouteNetlinkMessage::DelAddress(message(ifindex, address, prefix_len)),
            flags: 0,
            action: format!("removing address {address}/{prefix_len} from interface {ifindex}"),
        }])
    }
}

fn message(ifindex: u32, address: IpAddr, prefix_len: u8) -> AddressMessage {
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

fn read(message: &AddressMessage) -> Option<Address> {
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
