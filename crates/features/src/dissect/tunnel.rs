//! Tunnels: replaces a packet by the packet inside it, if flows are keyed by inner addresses.

use packet::parse::Fragment;
use packet::pcap::Frame;
use packet::{ethertype, protocol};

use super::Packet;
use super::ip::{self, u16_at};
use super::link::{self, Link};

/// The addresses that form the flow key of a tunneled packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// The addresses of the tunnel endpoints.
    #[default]
    Outer,
    /// The addresses of the innermost readable packet.
    Inner,
}

const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;
const GTP_USER: u16 = 2152;

/// Ethernet in GRE, VXLAN or Geneve.
const TRANSPARENT_BRIDGING: u16 = 0x6558;

/// The maximum nesting of tunnels that are opened.
const MAX_DEPTH: usize = 4;

/// The identifier in a tunnel header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// The network identifier of VXLAN (RFC 7348).
    Vxlan(u32),
    /// The network identifier of Geneve (RFC 8926).
    Geneve(u32),
    /// The subnet identifier of NVGRE (RFC 7637).
    Nvgre(u32),
    /// The key of GRE (RFC 2890).
    Gre(u32),
    /// The tunnel endpoint identifier of GTP-U (3GPP TS 29.281).
    Gtp(u32),
}

impl Tunnel {
    pub fn id(self) -> u32 {
        match self {
            Self::Vxlan(id)
            | Self::Geneve(id)
            | Self::Nvgre(id)
            | Self::Gre(id)
            | Self::Gtp(id) => id,
        }
    }

    /// The identifier of the virtual network of the inner addresses. GRE keys and TEIDs do not identify a network:
    /// the receiver assigns them, so they differ between the directions of a conversation.
    pub fn network(self) -> Option<u32> {
        match self {
            Self::Vxlan(id) | Self::Geneve(id) | Self::Nvgre(id) => Some(id),
            Self::Gre(_) | Self::Gtp(_) => None,
        }
    }
}

/// The contents of a tunnel packet.
struct TunnelPayload<'a> {
    ethertype: u16,
    tunnel: Option<Tunnel>,
    bytes: &'a [u8],
}

/// Opens nested tunnels for as long as they contain a valid packet.
pub(super) fn innermost<'a>(frame: &Frame<'a>, outer: Packet<'a>) -> Packet<'a> {
    let mut packet = outer;
    for _ in 0..MAX_DEPTH {
        let Some(inner) = inside(&packet).and_then(|inside| open(frame, &packet, &inside)) else {
            break;
        };
        packet = inner;
    }
    packet
}

/// The packet in a tunnel, with the outer frame's time, wire length, VLAN tag and hardware addresses.
fn open<'a>(
    frame: &Frame<'a>,
    outer: &Packet<'a>,
    inside: &TunnelPayload<'a>,
) -> Option<Packet<'a>> {
    let mut link = Link {
        l3: 0,
        ethertype: inside.ethertype,
        ..outer.link
    };
    if inside.ethertype == TRANSPARENT_BRIDGING {
        link::ethernet(inside.bytes, &mut link).ok()?;
    }
    link::unwrap_layers(inside.bytes, &mut link).ok()?;
    if !matches!(link.ethertype, ethertype::IPV4 | ethertype::IPV6) {
        return None;
    }
    let missing = frame.original_length.saturating_sub(captured(frame));
    let carried = Frame {
        original_length: u32::try_from(inside.bytes.len()).ok()? + missing,
        bytes: inside.bytes,
        ..*frame
    };
    let mut packet = ip::read(&carried, link).ok()?;
    packet.wire_length = outer.wire_length;
    packet.tunnel = inside.tunnel;
    packet.key.network = inside.tunnel.and_then(Tunnel::network).unwrap_or(0);
    packet.malformed |= outer.malformed;
    packet.link.source_mac = outer.link.source_mac;
    packet.link.destination_mac = outer.link.destination_mac;
    Some(packet)
}

fn captured(frame: &Frame<'_>) -> u32 {
    u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX)
}

fn inside<'a>(packet: &Packet<'a>) -> Option<TunnelPayload<'a>> {
    if packet.fragment != Fragment::None {
        return None;
    }
    let bytes = packet.payload;
    match packet.key.protocol {
        IP_IN_IP => plain(ethertype::IPV4, bytes),
        IPV6_IN_IP => plain(ethertype::IPV6, bytes),
        GRE => gre(bytes),
        protocol::UDP => udp_tunnel(packet),
        _ => None,
    }
}

fn plain(ethertype: u16, bytes: &[u8]) -> Option<TunnelPayload<'_>> {
    Some(TunnelPayload {
        ethertype,
        tunnel: None,
        bytes,
    })
}

/// GRE of version 0 (RFC 2784, RFC 2890) with checksum, key and sequence number.
fn gre(bytes: &[u8]) -> Option<TunnelPayload<'_>> {
    let header = bytes.get(..4)?;
    let flags = u16_at(header, 0);
    if flags & 7 != 0 {
        return None;
    }
    let mut at = 4;
    if flags & 0x8000 != 0 {
        at += 4;
    }
    let mut key = None;
    if flags & 0x2000 != 0 {
        let word = bytes.get(at..at + 4)?;
        key = Some(u32::from(u16_at(word, 0)) << 16 | u32::from(u16_at(word, 2)));
        at += 4;
    }
    if flags & 0x1000 != 0 {
        at += 4;
    }
    let ethertype = u16_at(header, 2);
    Some(TunnelPayload {
        ethertype,
        tunnel: key.map(|key| nvgre(flags, ethertype, key).unwrap_or(Tunnel::Gre(key))),
        bytes: bytes.get(at..)?,
    })
}

/// NVGRE is Ethernet in GRE with a key and nothing else. Its subnets have numbers from 0x1000 on, in
/// the upper 24 bits of the key (RFC 7637 section 3.2).
fn nvgre(flags: u16, ethertype: u16, key: u32) -> Option<Tunnel> {
    let subnet = key >> 8;
    let is_nvgre = flags == 0x2000 && ethertype == TRANSPARENT_BRIDGING && subnet >= 0x1000;
    is_nvgre.then_some(Tunnel::Nvgre(subnet))
}

/// Tunnels that are recognized by the UDP destination port.
fn udp_tunnel<'a>(packet: &Packet<'a>) -> Option<TunnelPayload<'a>> {
    let bytes = packet.payload;
    match packet.key.endpoint(packet.sender.other()).port {
        VXLAN => vxlan(bytes),
        GENEVE => geneve(bytes),
        GTP_USER => gtp(bytes),
        _ => None,
    }
}

/// RFC 7348: the flag that marks the network identifier as valid, and the identifier.
fn vxlan(bytes: &[u8]) -> Option<TunnelPayload<'_>> {
    let header = bytes.get(..8)?;
    (header[0] & 0x08 != 0).then(|| TunnelPayload {
        ethertype: TRANSPARENT_BRIDGING,
        tunnel: Some(Tunnel::Vxlan(identifier(header))),
        bytes: &bytes[8..],
    })
}

/// RFC 8926: version 0. Options are skipped.
fn geneve(bytes: &[u8]) -> Option<TunnelPayload<'_>> {
    let header = bytes.get(..8)?;
    if header[0] >> 6 != 0 {
        return None;
    }
    Some(TunnelPayload {
        ethertype: u16_at(header, 2),
        tunnel: Some(Tunnel::Geneve(identifier(header))),
        bytes: bytes.get(8 + usize::from(header[0] & 0x3f) * 4..)?,
    })
}

/// The 24-bit identifier in the second word of VXLAN and Geneve.
fn identifier(header: &[u8]) -> u32 {
    u32::from(u16_at(header, 4)) << 8 | u32::from(header[6])
}

/// GTPv1-U (3GPP TS 29.281): a G-PDU without or with its optional word and extension headers.
fn gtp(bytes: &[u8]) -> Option<TunnelPayload<'_>> {
    const G_PDU: u8 = 255;
    let header = bytes.get(..8)?;
    if header[0] >> 5 != 1 || header[0] & 0x10 == 0 || header[1] != G_PDU {
        return None;
    }
    let mut at = 8;
    if header[0] & 0x07 != 0 {
        let mut next = *bytes.get(11)?;
        at = 12;
        while header[0] & 0x04 != 0 && next != 0 {
            let words = usize::from(*bytes.get(at)?);
            if words == 0 {
                return None;
            }
            at += words * 4;
            next = *bytes.get(at - 1)?;
        }
    }
    let inner = bytes.get(at..)?;
    let ethertype = match inner.first()? >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return None,
    };
    Some(TunnelPayload {
        ethertype,
        tunnel: Some(Tunnel::Gtp(
            u32::from(u16_at(header, 4)) << 16 | u32::from(u16_at(header, 6)),
        )),
        bytes: inner,
    })
}
