//! Transport headers: ports, TCP flags and windows, and ICMP types.

use packet::parse::Fragment;
use packet::protocol;

use super::ip::u16_at;
use super::{Icmp, Tcp, icmp_kind, tcp_flag};

const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

const MIN_TCP_HEADER: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Transport {
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    /// Declared length in bytes, limited to the room in the packet.
    pub(super) header: usize,
    /// The protocol has a header, but it is truncated or invalid.
    pub(super) headless: bool,
    pub(super) malformed: bool,
    pub(super) tcp: Option<Tcp>,
    pub(super) icmp: Option<Icmp>,
}

/// Reads the captured bytes behind an IP header, where the packet itself has `room` bytes.
pub(super) fn read(
    protocol: u8,
    version: u8,
    fragment: Fragment,
    bytes: &[u8],
    room: usize,
) -> Transport {
    if fragment == Fragment::Later {
        return Transport {
            headless: true,
            ..Transport::default()
        };
    }
    match (protocol, version) {
        (protocol::TCP, _) => tcp(bytes, room),
        (protocol::UDP, _) => udp(bytes, version, room, fragment),
        (UDP_LITE, _) => with_ports(bytes, room, 8),
        (SCTP | DCCP, _) => with_ports(bytes, room, 12),
        (protocol::ICMP, 4) | (protocol::ICMPV6, 6) => icmp(bytes, room),
        _ => Transport::default(),
    }
}

/// Reads a header of `size` bytes that starts with two ports. If the capture truncated it, the captured part is
/// read. If the packet itself is too short, it is malformed.
fn with_ports(bytes: &[u8], room: usize, size: usize) -> Transport {
    let mut transport = Transport {
        header: size.min(room),
        headless: bytes.len() < size,
        malformed: room < size,
        ..Transport::default()
    };
    if bytes.len() >= 4 {
        transport.source_port = u16_at(bytes, 0);
        transport.destination_port = u16_at(bytes, 2);
    }
    transport
}

fn udp(bytes: &[u8], version: u8, room: usize, fragment: Fragment) -> Transport {
    let mut transport = with_ports(bytes, room, 8);
    if bytes.len() >= 6 {
        let declared = usize::from(u16_at(bytes, 4));
        // A jumbogram declares a length of 0 (RFC 2675). A first fragment declares the length of the whole datagram.
        let impossible = declared < 8 && (declared > 0 || version == 4);
        let too_long = declared > room && fragment == Fragment::None;
        transport.malformed |= impossible || too_long;
        transport.headless |= impossible;
    }
    transport
}

fn tcp(bytes: &[u8], room: usize) -> Transport {
    let mut transport = with_ports(bytes, room, MIN_TCP_HEADER);
    let Some(header) = bytes.get(..MIN_TCP_HEADER) else {
        return transport;
    };
    let size = usize::from(header[12] >> 4) * 4;
    if size < MIN_TCP_HEADER || size > room {
        transport.malformed = true;
        transport.headless = true;
    } else {
        transport.header = size;
        transport.headless = bytes.len() < size;
    }
    let flags = header[13];
    let options = bytes.get(MIN_TCP_HEADER..transport.header).unwrap_or(&[]);
    transport.tcp = Some(Tcp {
        flags,
        reserved: header[12] & 0x0f,
        sequence: u32_at(header, 4),
        acknowledgement: u32_at(header, 8),
        window: u16_at(header, 14),
        window_scale: (flags & tcp_flag::SYN != 0)
            .then(|| window_scale(options))
            .flatten(),
    });
    transport
}

/// The shift in a window scale option.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const WINDOW_SCALE: u8 = 3;
    loop {
        options = match options {
            [END, ..] | [] => return None,
            [NO_OPERATION, rest @ ..] => rest,
            [WINDOW_SCALE, 3, shift, ..] => return Some(*shift),
            [_, size, ..] if *size >= 2 => options.get(usize::from(*size)..)?,
            _ => return None,
        };
    }
}

fn icmp(bytes: &[u8], room: usize) -> Transport {
    const ECHOES: [u8; 4] = [
        icmp_kind::REPLY,
        icmp_kind::REQUEST,
        icmp_kind::REQUEST_V6,
        icmp_kind::REPLY_V6,
    ];
    let icmp = bytes.get(..8).map(|header| Icmp {
        kind: header[0],
        code: header[1],
        identifier: if ECHOES.contains(&header[0]) {
            u16_at(header, 4)
        } else {
            0
        },
    });
    Transport {
        header: room.min(8),
        malformed: room < 8,
        icmp,
        ..Transport::default()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}
