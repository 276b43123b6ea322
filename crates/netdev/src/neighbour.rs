//! Link-layer addresses of neighbours: listed, set, asked for.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
pub use netlink_packet_route::neighbour::NeighbourState;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};

use crate::Error;
use crate::address::family;
use crate::netlink::{Change, Netlink};

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

impl Netlink {
    /// Every neighbour of both families.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, Error> {
        let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.dump(&request, "listing neighbours")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(message) => Neighbour::read(&message),
                _ => None,
            })
            .collect())
    }

    /// One entry; none when the table has no such neighbour.
    pub fn neighbour(&mut self, ifindex: u32, address: IpAddr) -> Result<Option<Neighbour>, Error> {
        let request = RouteNetlinkMessage::GetNeighbour(message(ifindex, address));
        match self.get(request, &format!("reading neighbour {address}")) {
            Ok(RouteNetlinkMessage::NewNeighbour(message)) => Ok(Neighbour::read(&message)),
            Ok(_) => Ok(None),
            // ENODEV: the device went away, and its neighbours with it.
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets neighbours, as (index, address, link-layer address); `state` is `Permanent` (never
    /// asked for again) or `Reachable` (until its time is over).
    pub fn set_neighbours(
        &mut self,
        neighbours: &[(u32, IpAddr, [u8; 6])],
        state: NeighbourState,
    ) -> Result<(), Error> {
        let changes = neighbours.iter().map(|&(ifindex, address, mac)| {
            let mut message = message(ifindex, address);
            message.header.state = state;
            message
                .attributes
                .push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
            Change {
                message: RouteNetlinkMessage::NewNeighbour(message),
                flags: NLM_F_CREATE | NLM_F_REPLACE,
                action: format!("setting neighbour {address} of interface {ifindex}"),
            }
        });
        self.apply(changes.collect())
    }

    /// Has the kernel treat the neighbour as used: an unknown one is asked for, a stale one is
    /// confirmed. Returns at once.
    pub fn probe_neighbour(&mut self, ifindex: u32, address: IpAddr) -> Result<(), Error> {
        let mut message = message(ifindex, address);
        message.header.flags = NeighbourFlags::Use;
        self.apply(vec![Change {
            message: RouteNetlinkMessage::NewNeighbour(message),
            flags: NLM_F_CREATE | NLM_F_REPLACE,
            action: format!("probing neighbour {address} of interface {ifindex}"),
        }])
    }

    /// Forgets a neighbour.
    pub fn delete_neighbour(&mut self, ifindex: u32, address: IpAddr) -> Result<(), Error> {
        self.apply(vec![Change {
            message: RouteNetlinkMessage::DelNeighbour(message(ifindex, address)),
            flags: 0,
            action: format!("deleting neighbour {address} of interface {ifindex}"),
        }])
    }
}

fn message(ifindex: u32, address: IpAddr) -> NeighbourMessage {
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
