//! IPv4 and IPv6 headers, with options and extension headers.

use packet::parse::Fragment;
use packet::pcap::Frame;
use packet::{ethertype, protocol};

use super::{Link, Packet, transport};
use crate::counters::Rejection;
use crate::key::{Endpoint, Key, mapped};

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
/// RFC 8200 section 5.
const V6_MIN_MTU: usize = 1280;

/// RFC 5533: an extension header.
const SHIM6: u8 = 140;

/// The fields of an IP header that are needed to read the transport header.
#[derive(Debug)]
struct Network {
    version: u8,
    source: u128,
    destination: u128,
    /// The protocol after all extension headers.
    protocol: u8,
    ttl: u8,
    tos: u8,
    identification: u32,
    /// The protocol field of the IPv4 header; 0 for IPv6.
    ip_protocol: u8,
    fragment: Fragment,
    length: usize,
    header: usize,
    aggregated: bool,
    malformed: bool,
}

/// Reads the IP header at `link.l3` and the transport header behind it.
pub(super) fn read<'a>(frame: &Frame<'a>, link: Link) -> Result<Packet<'a>, Rejection> {
    let on_wire = (frame.original_length as usize).max(frame.bytes.len());
    let bytes = frame.bytes.get(link.l3..).unwrap_or(&[]);
    let room = on_wire - link.l3.min(on_wire);
    // A frame marked IPv4 may have either version in its header. A frame marked IPv6 must have version 6.
    let network = match (link.ethertype, bytes.first().map(|first| first >> 4)) {
        (ethertype::IPV4, Some(4)) => v4(bytes, room)?,
        (_, Some(6)) => v6(bytes, room)?,
        (_, Some(_)) => return Err(Rejection::BadIp),
        (_, None) => return Err(Rejection::TruncatedIp),
    };
    let end = network.length.min(bytes.len());
    let rest = bytes.get(network.header.min(end)..end).unwrap_or(&[]);
    let room = network.length.saturating_sub(network.header);
    let transport = transport::read(
        network.protocol,
        network.version,
        network.fragment,
        rest,
        room,
    );
    let (key, sender) = Key::of(
        Endpoint {
            address: network.source,
            port: transport.source_port,
        },
        Endpoint {
            address: network.destination,
            port: transport.destination_port,
        },
        network.protocol,
        network.version,
    );
    Ok(Packet {
        time_ns: frame.timestamp_ns,
        wire_length: length(on_wire),
        link,
        key,
        sender,
        tunnel: None,
        ip_length: length(network.length),
        ip_header: length(network.header),
        l4_header: length(transport.header),
        payload_length: length(room - transport.header.min(room)),
        ttl: network.ttl,
        tos: network.tos,
        fragment: network.fragment,
        identification: network.identification,
        ip_protocol: network.ip_protocol,
        tcp: transport.tcp,
        icmp: transport.icmp,
        truncated: frame.bytes.len() < frame.original_length as usize,
        headless: transport.headless,
        malformed: network.malformed || transport.malformed,
        aggregated: network.aggregated,
        payload: rest.get(transport.header..).unwrap_or(&[]),
        network: bytes.get(..end).unwrap_or(&[]),
    })
}

fn v4(bytes: &[u8], room: usize) -> Result<Network, Rejection> {
    let ip = bytes.get(..V4_HEADER).ok_or(Rejection::TruncatedIp)?;
    let header = usize::from(ip[0] & 0x0f) * 4;
    if header < V4_HEADER {
        return Err(Rejection::BadIp);
    }
    if bytes.len() < header {
        return Err(Rejection::TruncatedIp);
    }
    let declared = usize::from(u16_at(ip, 2));
    // The length may be zero in a packet that the stack leaves to the device for segmentation.
    let aggregated = declared == 0;
    let length = if aggregated { room } else { declared };
    if length < header {
        return Err(Rejection::BadIp);
    }
    let offset = u16_at(ip, 6);
    let mut network = Network {
        version: 4,
        source: mapped([ip[12], ip[13], ip[14], ip[15]]),
        destination: mapped([ip[16], ip[17], ip[18], ip[19]]),
        protocol: ip[9],
        ttl: ip[8],
        tos: ip[1],
        identification: u16_at(ip, 4).into(),
        ip_protocol: ip[9],
        fragment: match (offset & 0x1fff, offset & 0x2000) {
            (0, 0) => Fragment::None,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        },
        length,
        header,
        aggregated,
        malformed: length > room,
    };
    if network.fragment != Fragment::Later && network.protocol == protocol::AUTHENTICATION {
        // IPv4 has no chain of extension headers. An unreadable AH is therefore the transport, not a bad IP header.
        network.malformed |= extensions(bytes, &mut network).is_err();
    }
    Ok(network)
}

fn v6(bytes: &[u8], room: usize) -> Result<Network, Rejection> {
    let ip = bytes.get(..V6_HEADER).ok_or(Rejection::TruncatedIp)?;
    let declared = usize::from(u16_at(ip, 4));
    // TCP that the device segments. A packet of up to the minimum MTU never needs segmentation.
    let aggregated = declared == 0 && ip[6] == protocol::TCP && room > V6_MIN_MTU;
    let payload = match (declared, ip[6]) {
        (0, protocol::HOP_BY_HOP) => jumbo_payload(bytes).ok_or(Rejection::BadIp)?,
        _ if aggregated => room - V6_HEADER,
        _ => declared,
    };
    let length = V6_HEADER + payload;
    let mut network = Network {
        version: 6,
        source: u128_at(ip, 8),
        destination: u128_at(ip, 24),
        protocol: ip[6],
        ttl: ip[7],
        tos: ip[0] << 4 | ip[1] >> 4,
        identification: 0,
        ip_protocol: 0,
        fragment: Fragment::None,
        length,
        header: V6_HEADER,
        aggregated,
        malformed: length > room,
    };
    extensions(bytes, &mut network)?;
    Ok(network)
}

/// The payload length in a hop-by-hop header's jumbo option (RFC 2675).
fn jumbo_payload(bytes: &[u8]) -> Option<usize> {
    const PAD_ONE: u8 = 0;
    const JUMBO: u8 = 0xc2;
    let header = bytes.get(V6_HEADER..)?;
    let size = (usize::from(*header.get(1)?) + 1) * 8;
    let mut options = header.get(2..size)?;
    loop {
        options = match options {
            [PAD_ONE, rest @ ..] => rest,
            [JUMBO, 4, a, b, c, d, ..] => {
                let length = u32::from_be_bytes([*a, *b, *c, *d]);
                return usize::try_from(length)
                    .ok()
                    .filter(|&length| length > 0xffff);
            }
            [_, size, ..] => options.get(2 + usize::from(*size)..)?,
            _ => return None,
        };
    }
}

/// Walks the extension headers (RFC 8200 section 4; AH also in IPv4) up to the transport header, or up to the data of
/// a later fragment. A chain that does not end within the packet is an error.
fn extensions(bytes: &[u8], network: &mut Network) -> Result<(), Rejection> {
    while is_extension(network.protocol) && network.fragment != Fragment::Later {
        let at = network.header;
        let Some(extension) = bytes.get(at..at + 8) else {
            return Err(cut_off(network, at + 8));
        };
        let size = match network.protocol {
            protocol::FRAGMENT => {
                fragment(extension, network);
                8
            }
            protocol::AUTHENTICATION => (usize::from(extension[1]) + 2) * 4,
            _ => (usize::from(extension[1]) + 1) * 8,
        };
        if at + size > network.length.min(bytes.len()) {
            return Err(cut_off(network, at + size));
        }
        network.protocol = extension[0];
        network.header += size;
    }
    Ok(())
}

/// The reason that a header ending at `end` is incomplete: either the packet or the capture of it is too short.
fn cut_off(network: &Network, end: usize) -> Rejection {
    if end > network.length {
        Rejection::BadIp
    } else {
        Rejection::TruncatedIp
    }
}

fn fragment(extension: &[u8], network: &mut Network) {
    let offset = u16_at(extension, 2);
    network.identification =
        u32::from(u16_at(extension, 4)) << 16 | u32::from(u16_at(extension, 6));
    // An atomic fragment (RFC 6946): without an offset and the M flag, the packet is complete.
    network.fragment = match (offset & 0xfff8, offset & 1) {
        (0, 0) => network.fragment,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    };
}

fn is_extension(number: u8) -> bool {
    matches!(
        number,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AUTHENTICATION
            | protocol::DESTINATION_OPTIONS
            | SHIM6
    )
}

/// Converts a length back. All lengths come from fields of 16 or 32 bits, so none is cut.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut address = [0; 16];
    address.copy_from_slice(&bytes[at..at + 16]);
    u128::from_be_bytes(address)
}
