//! Where a packet to a destination leaves this namespace, and by what link-layer address.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The way to a destination, as the kernel's routing and neighbour tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextHop {
    Ready {
        ifindex: u32,
        source_mac: [u8; 6],
        destination_mac: [u8; 6],
        /// The smaller of the device's and the route's MTU, in bytes of IP packet.
        mtu: u32,
        /// The address the kernel would send from.
        source: IpAddr,
    },
    Unresolved(UnresolvedReason),
}

/// Why a next hop has no frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnresolvedReason {
    NoRoute,
    /// The route is known, its gateway's link-layer address is not (yet).
    NoNeighbour {
        ifindex: u32,
        gateway: IpAddr,
    },
    /// The route leads back to this machine.
    Local,
    /// The route puts packets into others, which only the kernel does.
    Encapsulated,
    /// The device is down or gone.
    LinkDown {
        ifindex: u32,
    },
}
