//! From a destination address to a frame that can be sent: route, device and neighbour together.
//!
//! It reads the kernel's tables once per call; `NextHopTracker` keeps the answer current.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::neighbour::NeighbourState;
use crate::{Error, Link, Lookup, Netlink, NextHop, UnresolvedReason};

/// An address to send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Destination {
    pub address: IpAddr,
    /// The device it must leave by: link-local and multicast destinations mostly need one.
    pub ifindex: Option<u32>,
    /// The address it is sent from, which policy rules may select a route by.
    pub source: Option<IpAddr>,
}

impl From<IpAddr> for Destination {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            ifindex: None,
            source: None,
        }
    }
}

/// A next hop, and what it was derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    pub next_hop: NextHop,
    /// The device of the route, when there is one.
    pub ifindex: Option<u32>,
    /// The neighbour whose link-layer address is used, when the destination has one.
    pub neighbour: Option<IpAddr>,
    /// The neighbour's address is known but its confirmation is old.
    pub stale: bool,
}

/// The kernel's forwarding tables, asked one destination at a time.
#[derive(Debug)]
pub struct Fib {
    netlink: Netlink,
}

impl Fib {
    /// The tables of the calling thread's namespace.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            netlink: Netlink::new()?,
        })
    }

    /// The next hop of one destination, as the tables are now. Sends nothing on the wire.
    pub fn next_hop(&mut self, destination: Destination) -> Result<NextHop, Error> {
        self.resolve(destination)
            .map(|resolution| resolution.next_hop)
    }

    /// The next hop with what it rests on.
    pub fn resolve(&mut self, destination: Destination) -> Result<Resolution, Error> {
        self.resolve_again(destination, None)
    }

    /// As `resolve`; `before` is the device that the way led through, whose going down takes its
    /// routes with it.
    pub(crate) fn resolve_again(
        &mut self,
        destination: Destination,
        before: Option<u32>,
    ) -> Result<Resolution, Error> {
        let Destination {
            address, ifindex, ..
        } = destination;
        let lookup = match self.netlink.route_for(destination) {
            Ok(lookup) => lookup,
            Err(error) if error.errno() == Some(libc::ENODEV) => {
                let ifindex = ifindex.unwrap_or_default();
                return Ok(unresolved(
                    Some(ifindex),
                    UnresolvedReason::LinkDown { ifindex },
                ));
            }
            Err(error) if is_unreachable(&error) => {
                return self.no_route(ifindex.or(before));
            }
            Err(error) => return Err(error),
        };
        let link = match self.netlink.link_by_index(lookup.ifindex) {
            Ok(link) => link,
            Err(Error::NoInterface(_)) => return Ok(link_down(lookup.ifindex)),
            Err(error) => return Err(error),
        };
        if lookup.local || link.loopback {
            return Ok(unresolved(Some(link.index), UnresolvedReason::Local));
        }
        if !link.carrier {
            return Ok(link_down(link.index));
        }
        if lookup.encapsulates {
            let reason = UnresolvedReason::Encapsulated;
            return Ok(unresolved(Some(link.index), reason));
        }
        match fixed_mac(address, &lookup, &link) {
            Some(mac) => Ok(Resolution {
                next_hop: ready(address, &lookup, &link, mac),
                ifindex: Some(link.index),
                neighbour: None,
                stale: false,
            }),
            None => self.through_neighbour(address, &lookup, &link),
        }
    }

    /// Has the kernel ask for a neighbour, or confirm a stale one.
    pub fn probe(&mut self, ifindex: u32, neighbour: IpAddr) -> Result<(), Error> {
        self.netlink.probe_neighbour(ifindex, neighbour)
    }

    fn through_neighbour(
        &mut self,
        address: IpAddr,
        lookup: &Lookup,
        link: &Link,
    ) -> Result<Resolution, Error> {
        let gateway = lookup.gateway.unwrap_or(address);
        let neighbour = self.netlink.neighbour(link.index, gateway)?;
        let usable = neighbour.as_ref().filter(|neighbour| neighbour.usable());
        let next_hop = match usable.and_then(|neighbour| neighbour.mac) {
            Some(mac) => ready(address, lookup, link, mac),
            None => NextHop::Unresolved(UnresolvedReason::NoNeighbour {
                ifindex: link.index,
                gateway,
            }),
        };
        Ok(Resolution {
            next_hop,
            ifindex: Some(link.index),
            neighbour: Some(gateway),
            stale: usable.is_some_and(|neighbour| neighbour.state == NeighbourState::Stale),
        })
    }

    /// A device that is down has no routes: say that it is down, where it was named.
    fn no_route(&mut self, ifindex: Option<u32>) -> Result<Resolution, Error> {
        if let Some(ifindex) = ifindex {
            match self.netlink.link_by_index(ifindex) {
                Ok(link) if link.carrier => {}
                Ok(_) | Err(Error::NoInterface(_)) => return Ok(link_down(ifindex)),
                Err(error) => return Err(error),
            }
        }
        Ok(unresolved(ifindex, UnresolvedReason::NoRoute))
    }
}

/// The destination address of the frame, where no neighbour has to be asked for it.
fn fixed_mac(address: IpAddr, lookup: &Lookup, link: &Link) -> Option<[u8; 6]> {
    match address {
        _ if !link.ethernet => Some([0; 6]),
        IpAddr::V4(group) if group.is_multicast() => Some(multicast_mac_v4(group)),
        IpAddr::V6(group) if group.is_multicast() => Some(multicast_mac_v6(group)),
        IpAddr::V4(_) if lookup.broadcast => Some([0xff; 6]),
        _ => None,
    }
}

/// RFC 1112 section 6.4: the low 23 bits of the group.
fn multicast_mac_v4(group: Ipv4Addr) -> [u8; 6] {
    let [_, b, c, d] = group.octets();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

/// RFC 2464 section 7: the low 32 bits of the group.
fn multicast_mac_v6(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

fn ready(address: IpAddr, lookup: &Lookup, link: &Link, mac: [u8; 6]) -> NextHop {
    let any = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    NextHop::Ready {
        ifindex: link.index,
        source_mac: link.mac,
        destination_mac: mac,
        mtu: lookup.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        source: lookup.source.unwrap_or(any),
    }
}

fn unresolved(ifindex: Option<u32>, why: UnresolvedReason) -> Resolution {
    Resolution {
        next_hop: NextHop::Unresolved(why),
        ifindex,
        neighbour: None,
        stale: false,
    }
}

fn link_down(ifindex: u32) -> Resolution {
    unresolved(Some(ifindex), UnresolvedReason::LinkDown { ifindex })
}

/// The answers to a lookup that finds no usable route; EINVAL is a blackhole's.
fn is_unreachable(error: &Error) -> bool {
    matches!(
        error.errno(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL | libc::ENETDOWN)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_addresses_are_derived_from_the_group() {
        let v4 = multicast_mac_v4(Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(v4, [0x01, 0x00, 0x5e, 0x01, 2, 3]);
        let v6 = multicast_mac_v6("ff3e::4321:8765".parse().unwrap());
        assert_eq!(v6, [0x33, 0x33, 0x43, 0x21, 0x87, 0x65]);
    }
}
