//! Routes, and the kernel's own answer to which one a packet takes.

use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType, RouteVia,
};

use crate::address::family;

/// A unicast route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network's address; with prefix length 0, the default route.
    pub destination: IpAddr,
    pub prefix_len: u8,
    pub gateway: Option<IpAddr>,
    pub ifindex: Option<u32>,
    /// The route's own limit, in bytes of IP packet.
    pub mtu: Option<u32>,
}

/// The kernel's answer for one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub ifindex: u32,
    /// None where the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The address the kernel would send from.
    pub source: Option<IpAddr>,
    /// The route's limit or a learned path MTU, in bytes of IP packet.
    pub mtu: Option<u32>,
    /// The destination is this machine.
    pub local: bool,
    /// An IPv4 broadcast address of the link.
    pub broadcast: bool,
    /// The route puts packets into others (SRv6, MPLS, a tunnel).
    pub encapsulates: bool,
}

impl Route {
    pub(crate) fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(self.destination),
            destination_prefix_length: self.prefix_len,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            kind: RouteType::Unicast,
            scope: if self.gateway.is_some() || self.destination.is_ipv6() {
                RouteScope::Universe
            } else {
                RouteScope::Link
            },
            ..RouteHeader::default()
        };
        let destination = RouteAttribute::Destination(attribute(self.destination));
        let gateway = self
            .gateway
            .map(|gateway| match (self.destination, gateway) {
                (IpAddr::V4(_), IpAddr::V6(gateway)) => {
                    RouteAttribute::Via(RouteVia::Inet6(gateway))
                }
                _ => RouteAttribute::Gateway(attribute(gateway)),
            });
        let mtu = |mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]);
        message.attributes = [
            (self.prefix_len > 0).then_some(destination),
            gateway,
            self.ifindex.map(RouteAttribute::Oif),
            self.mtu.map(mtu),
        ]
        .into_iter()
        .flatten()
        .collect();
        message
    }

    pub(crate) fn read(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
            return None;
        }
        let any: IpAddr = match u8::from(header.address_family) {
            2 => std::net::Ipv4Addr::UNSPECIFIED.into(),
            10 => std::net::Ipv6Addr::UNSPECIFIED.into(),
            _ => return None,
        };
        let destination = message.attributes.iter().find_map(|a| match a {
            RouteAttribute::Destination(destination) => ip(destination),
            _ => None,
        });
        Some(Self {
            destination: destination.unwrap_or(any),
            prefix_len: header.destination_prefix_length,
            gateway: gateway(message),
            ifindex: oif(message),
            mtu: mtu(message),
        })
    }
}

impl Lookup {
    pub(crate) fn read(message: &RouteMessage) -> Option<Self> {
        let kind = message.header.kind;
        let usable = matches!(
            kind,
            RouteType::Unicast
                | RouteType::Local
                | RouteType::Broadcast
                | RouteType::Multicast
                | RouteType::Anycast
        );
        let source = message.attributes.iter().find_map(|a| match a {
            RouteAttribute::PrefSource(source) => ip(source),
            _ => None,
        });
        usable.then_some(Self {
            ifindex: oif(message)?,
            gateway: gateway(message),
            source,
            mtu: mtu(message),
            local: kind == RouteType::Local,
            broadcast: kind == RouteType::Broadcast,
            encapsulates: message
                .attributes
                .iter()
                .any(|a| matches!(a, RouteAttribute::EncapType(_) | RouteAttribute::Encap(_))),
        })
    }
}

pub(crate) fn attribute(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

pub(crate) fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn oif(message: &RouteMessage) -> Option<u32> {
    message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

fn gateway(message: &RouteMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Gateway(gateway) => ip(gateway),
        RouteAttribute::Via(RouteVia::Inet(gateway)) => Some((*gateway).into()),
        RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some((*gateway).into()),
        _ => None,
    })
}

fn mtu(message: &RouteMessage) -> Option<u32> {
    message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) => Some(*mtu).filter(|mtu| *mtu > 0),
            _ => None,
        }),
        _ => None,
    })
}
