//! Dissects a captured frame into the header fields that features are computed from.
//!
//! Lengths come from the headers, never from the number of captured bytes. A packet with a valid IP header is never
//! rejected: fields beyond it that cannot be read are zero, and a flag marks them.

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

/// ICMP and ICMPv6 message types.
pub(crate) mod icmp_kind {
    pub(crate) const REPLY: u8 = 0;
    pub(crate) const REQUEST: u8 = 8;
    pub(crate) const REQUEST_V6: u8 = 128;
    pub(crate) const REPLY_V6: u8 = 129;
}

/// The header fields of a frame. Lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Nanoseconds since the epoch.
    pub time_ns: i64,
    /// Length of the whole frame on the wire.
    pub wire_length: u32,
    pub link: Link,
    pub key: Key,
    pub sender: Sender,
    /// The tunnel that the packet was taken out of, if its header has an identifier.
    pub tunnel: Option<Tunnel>,
    /// Length from the first byte of the IP header to the end of the packet.
    pub ip_length: u32,
    /// Length of the IP header with options and extension headers.
    pub ip_header: u32,
    /// Length of the transport header; 0 for later fragments and for unsupported protocols.
    pub l4_header: u32,
    /// Bytes of `ip_length` behind the transport header.
    pub payload_length: u32,
    pub ttl: u8,
    /// DSCP and ECN bits.
    pub tos: u8,
    pub fragment: Fragment,
    /// IP identification. An IPv6 packet has one only if it is a fragment.
    pub identification: u32,
    /// The protocol field of the IPv4 header, which distinguishes fragments (RFC 791); 0 for IPv6.
    pub ip_protocol: u8,
    pub tcp: Option<Tcp>,
    pub icmp: Option<Icmp>,
    /// The packet is a later fragment, or its transport header is truncated or invalid.
    pub headless: bool,
    /// The capture holds fewer bytes than were on the wire.
    pub truncated: bool,
    /// A header contradicts itself or the headers around it.
    pub malformed: bool,
    /// More than one packet of the wire: the IP length is zero, as in segments left to the device.
    pub aggregated: bool,
    /// The captured bytes of the payload.
    pub payload: &'a [u8],
    /// The captured bytes from the IP header on.
    pub network: &'a [u8],
}

/// The fields of a TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    pub flags: u8,
    /// The four bits before the flags: AE (RFC 9768) is the lowest, the others are reserved.
    pub reserved: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    /// The window as sent, without scaling.
    pub window: u16,
    /// The shift of the window scale option (RFC 7323). Only SYNs have it.
    pub window_scale: Option<u8>,
}

/// The fields of an ICMP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Icmp {
    pub kind: u8,
    pub code: u8,
    /// The identifier of an echo, else 0.
    pub identifier: u16,
}

impl Packet<'_> {
    pub fn is_tcp(&self) -> bool {
        self.key.protocol == packet::protocol::TCP
    }

    pub fn has_flag(&self, flag: u8) -> bool {
        self.tcp.is_some_and(|tcp| tcp.flags & flag != 0)
    }

    /// Stores the identifier of an echo in place of the requester's port. The other port is 0.
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

/// Reads the packet in a frame.
///
/// # Errors
/// The reason that the frame contains no packet.
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
