//! Link-layer addresses of neighbours, as the kernel keeps them.

use std::net::IpAddr;

pub use netlink_packet_route::neighbour::NeighbourState;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};

use crate::address::family;

/// An entry of the neighbour table (ARP or ND).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub ifindex: u32,
    pub address: IpAddr,
    /// None while it is not known.
    pub mac: Option<[u8; 6]>,
    pub state: NeighbourState,
}

impl Neighbour {
    /// Whether frames may be sent to `mac` now.
    pub fn usable(&self) -> bool {
        self.mac.is_some()
            && matches!(
                self.state,
                NeighbourState::Reachable
                    | NeighbourState::Stale
                    | NeighbourState::Delay
                    | NeighbourState::Probe
                    | NeighbourState::Permanent
                    | NeighbourState::Noarp
            )
    }

    /// Whether a packet sent now would have the kernel ask whether it is still there.
    pub fn is_stale(&self) -> bool {
        self.state == NeighbourState::Stale
    }

    pub(crate) fn read(message: &NeighbourMessage) -> Option<Self> {
        let address = message.attributes.iter().find_map(|a| match a {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => Some(IpAddr::V4(*a)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => Some(IpAddr::V6(*a)),
            _ => None,
        })?;
        let mac = message.attributes.iter().find_map(|a| match a {
            NeighbourAttribute::LinkLayerAddress(mac) => mac.as_slice().try_into().ok(),
            _ => None,
        });
        Some(Self {
            ifindex: message.header.ifindex,
            address,
            mac,
            state: message.header.state,
        })
    }
}

pub(crate) fn message(ifindex: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = ifindex;
    message
        .attributes
        .push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
    message
}
