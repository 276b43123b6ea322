//! From a captured frame to the facts that features are made of.
//!
//! Lengths are those that headers declare, never those that a capture happened to keep. A packet
//! with a sound IP header is never refused: what cannot be read beyond it is zero, and flagged.

mod fragments;
mod ip;
mod link;
mod pair;
mod transport;
mod tunnel;

pub use fragments::Fragments;
pub use link::Link;
pub use packet::parse::Fragment;
pub(crate) use pair::shard;
pub use tunnel::{Tunnel, Tunnels};

use packet::ethertype;
use packet::pcap::Frame;

use crate::counters::Rejection;
use crate::key::{Endpoint, Key, Sender};

/// TCP flag bits.
pub mod tcp_flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

/// Kinds of ICMP and ICMPv6.
pub(crate) mod icmp_kind {
    pub(crate) const REPLY: u8 = 0;
    pub(crate) const REQUEST: u8 = 8;
    pub(crate) const REQUEST_V6: u8 = 128;
    pub(crate) const REPLY_V6: u8 = 129;
}

/// What a frame's headers say. Lengths in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Since the epoch.
    pub time_ns: i64,
    /// The whole frame, as long as it was on the wire.
    pub wire_length: u32,
    pub link: Link,
    pub key: Key,
    pub sender: Sender,
    /// Of the tunnel that the packet was taken out of, where its header has an identifier.
    pub tunnel: Option<Tunnel>,
    /// From the IP header's first byte to the packet's last.
    pub ip_length: u32,
    /// The IP header with its options and extension headers.
    pub ip_header: u32,
    /// 0 where there is none: later fragments, protocols that are not read.
    pub l4_header: u32,
    /// What is left of `ip_length`.
    pub payload_length: u32,
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    pub fragment: Fragment,
    /// The IP identification; of IPv6 only in fragments.
    pub identification: u32,
    /// The protocol field of the IPv4 header, by which fragments are told apart (RFC 791); 0 of IPv6.
    pub ip_protocol: u8,
    pub tcp: Option<Tcp>,
    pub icmp: Option<Icmp>,
    /// A later fragment, or the transport header is cut off or impossible.
    pub headless: bool,
    /// The capture holds less than was on the wire.
    pub truncated: bool,
    /// A header contradicts itself, or what surrounds it.
    pub malformed: bool,
    /// More than one packet of the wire: the IP length is zero, as in segments left to the device.
    pub aggregated: bool,
    /// What was captured of the payload.
    pub payload: &'a [u8],
    /// What was captured from the IP header on.
    pub network: &'a [u8],
}

/// What a TCP header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    pub flags: u8,
    /// The four bits before the flags: AE (RFC 9768) is the lowest, the others are reserved.
    pub reserved: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    /// As sent, not scaled.
    pub window: u16,
    /// The shift of the window scale option (RFC 7323), in SYNs only.
    pub window_scale: Option<u8>,
}

/// What an ICMP header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Icmp {
    pub kind: u8,
    pub code: u8,
    /// Of an echo, else 0.
    pub identifier: u16,
}

impl Packet<'_> {
    pub fn is_tcp(&self) -> bool {
        self.key.protocol == packet::protocol::TCP
    }

    pub fn has_flag(&self, flag: u8) -> bool {
        self.tcp.is_some_and(|tcp| tcp.flags & flag != 0)
    }

    /// Gives an echo its identifier in place of a port: that of the side that asks, as the other one's is 0.
    #[inline]
    pub(crate) fn distinguish_echo(&mut self) {
        let Some(icmp) = self.icmp.filter(|icmp| icmp.identifier != 0) else {
            return;
        };
        let (source, destination) = match icmp.kind {
            icmp_kind::REPLY | icmp_kind::REPLY_V6 => (0, icmp.identifier),
            _ => (icmp.identifier, 0),
        };
        let end = |sender, port| Endpoint {
            port,
            ..self.key.endpoint(sender)
        };
        let (key, sender) = Key::of(
            end(self.sender, source),
            end(self.sender.other(), destination),
            self.key.protocol,
            self.key.version,
        );
        self.key.addresses = key.addresses;
        self.key.ports = key.ports;
        self.sender = sender;
    }
}

/// Reads a frame, and says why where there is no packet in it.
pub fn dissect<'a>(frame: &Frame<'a>, tunnels: Tunnels) -> Result<Packet<'a>, Rejection> {
    let link = link::read(frame.link_type, frame.bytes).map_err(|why| match why {
        link::NoNetwork::LinkType => Rejection::LinkType,
        link::NoNetwork::CutOff => Rejection::TruncatedLink,
        link::NoNetwork::TooDeep => Rejection::TooDeep,
    })?;
    if !matches!(link.ethertype, ethertype::IPV4 | ethertype::IPV6) {
        return Err(Rejection::NotIp);
    }
    match tunnels {
        Tunnels::Outer => ip::read(frame, link),
        Tunnels::Inner => Ok(tunnel::innermost(frame, ip::read(frame, link)?)),
    }
}
