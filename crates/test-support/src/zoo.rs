//! Packets of many kinds, each marked so that it is known again where it arrives.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use packet::build::{self, Builder, Checksum, Extension};

const MARK: &str = "zoo:";
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// The fragment header of IPv6.
const FRAGMENT: u8 = 44;

/// Where packets come from and go to.
#[derive(Clone, Debug)]
pub struct Path {
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// An address of the machine between, and one of the network behind it.
    pub own: IpAddr,
    pub behind: IpAddr,
}

/// A kind of packet, with the frames that make one of it up.
#[derive(Clone, Debug)]
pub struct Specimen {
    pub name: String,
    pub frames: Vec<Vec<u8>>,
}

/// One of each kind. Packets of another round have other identifications: fragments of two rounds are never put together.
///
/// # Panics
/// Where the addresses of the path are of different families.
#[must_use]
pub fn zoo(path: &Path, round: u16) -> Vec<Specimen> {
    let v4 = path.source.is_ipv4();
    let mut packets = of_both(path);
    packets.extend(if v4 { of_ipv4(path) } else { of_ipv6(path) });
    let version = if v4 { 4 } else { 6 };
    let specimens = packets
        .into_iter()
        .enumerate()
        .map(|(number, (name, packet))| {
            // Repeated, so that every fragment has it.
            let payload = format!("{MARK}{version}{number:03}").repeat(6);
            let id = u16::try_from(number)
                .unwrap()
                .wrapping_add(round.wrapping_mul(100));
            let packet = packet.payload(payload).identification(id);
            let frame = packet.frame();
            let frames = match name {
                "in two fragments" => fragments(&frame, v4, id),
                _ => vec![alter(name, frame)],
            };
            Specimen {
                name: format!("IPv{version} {name}"),
                frames,
            }
        });
    specimens.collect()
}

fn of_both(path: &Path) -> Vec<(&'static str, Builder)> {
    let packet = || plain(path, path.source.ip());
    let from = |address| plain(path, address);
    let to = |address| {
        let destination = SocketAddr::new(address, path.destination.port());
        build::udp(path.source, destination).macs(path.source_mac, path.destination_mac)
    };
    let (source, destination) = (path.source.ip(), path.destination.ip());
    let macs = |packet: Builder| packet.macs(path.source_mac, path.destination_mac);
    let loopback: IpAddr = if path.source.is_ipv4() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    };
    vec![
        ("plain", packet()),
        ("low delay", packet().tos(0x10)),
        ("ECN", packet().tos(0x03)),
        ("TTL 1", packet().ttl(1)),
        ("TTL 2", packet().ttl(2)),
        ("TTL 59", packet().ttl(59)),
        ("wrong UDP checksum", packet().checksum(Checksum::Bad)),
        ("no UDP checksum", packet().checksum(Checksum::Absent)),
        ("bytes behind the packet", packet().padding(40)),
        ("cut off", packet()),
        ("in two fragments", packet()),
        ("TCP", macs(build::tcp(path.source, path.destination, 2, 1))),
        ("echo request", macs(build::echo(source, destination))),
        ("protocol 253", macs(build::other(source, destination, 253))),
        ("another port", {
            let port = path.destination.port() ^ 0x1000;
            let other = SocketAddr::new(destination, port);
            macs(build::udp(path.source, other))
        }),
        ("from this machine", from(path.own)),
        ("from the network behind", from(path.behind)),
        ("from the loopback", from(loopback)),
        ("to the loopback", to(loopback)),
        ("VLAN 0", packet().vlan(5 << 13)),
        ("VLAN 10", packet().vlan(10)),
        (
            "for another machine",
            packet().macs(path.source_mac, [2, 0x99, 0, 0, 0, 1]),
        ),
        (
            "broadcast on the link",
            packet().macs(path.source_mac, [0xff; 6]),
        ),
        (
            "multicast on the link",
            packet().macs(path.source_mac, [1, 0, 0x5e, 0, 0, 1]),
        ),
    ]
}

fn of_ipv4(path: &Path) -> Vec<(&'static str, Builder)> {
    let packet = || plain(path, path.source.ip());
    let from = |address: [u8; 4]| plain(path, address.into());
    let to = |address: [u8; 4]| {
        let destination = SocketAddr::new(address.into(), path.destination.port());
        build::udp(path.source, destination).macs(path.source_mac, path.destination_mac)
    };
    vec![
        ("options", packet().options(2)),
        ("may be fragmented", packet().dont_fragment(false)),
        ("first fragment alone", packet().fragment(0, true)),
        ("later fragment alone", packet().fragment(20, false)),
        ("wrong header checksum", packet()),
        ("from nowhere", from([0, 0, 0, 0])),
        ("from a group", from([224, 0, 0, 1])),
        ("from all", from([255, 255, 255, 255])),
        ("from class E", from([240, 1, 2, 3])),
        ("from far away", from([198, 51, 100, 9])),
        ("to a group", to([239, 1, 1, 1])),
        ("to all", to([255, 255, 255, 255])),
    ]
}

fn of_ipv6(path: &Path) -> Vec<(&'static str, Builder)> {
    let packet = || plain(path, path.source.ip());
    let from = |address: &str| plain(path, address.parse().unwrap());
    let extended = |extension| packet().extension(extension);
    let to_group = SocketAddr::new("ff0e::1:2".parse().unwrap(), path.destination.port());
    vec![
        ("hop-by-hop options", extended(Extension::HopByHop(0))),
        (
            "destination options",
            extended(Extension::DestinationOptions(0)),
        ),
        (
            "nine destination options",
            (0..9).fold(packet(), |packet, _| {
                packet.extension(Extension::DestinationOptions(0))
            }),
        ),
        ("routing header", extended(Extension::Routing(2))),
        ("authentication", extended(Extension::Authentication(2))),
        (
            "a fragment of one",
            extended(Extension::Fragment {
                offset: 0,
                more: false,
            }),
        ),
        (
            "later fragment alone",
            extended(Extension::Fragment {
                offset: 20,
                more: false,
            }),
        ),
        ("flow label", packet().flow_label(0xabcde)),
        ("from nowhere", from("::")),
        ("from a group", from("ff02::1")),
        ("from the link", from("fe80::1234")),
        ("from an IPv4 address", from("::ffff:192.0.2.1")),
        ("from far away", from("2001:db8:ffff::9")),
        (
            "to a group",
            build::udp(path.source, to_group).macs(path.source_mac, path.destination_mac),
        ),
    ]
}

fn plain(path: &Path, source: IpAddr) -> Builder {
    let source = SocketAddr::new(source, path.source.port());
    build::udp(source, path.destination).macs(path.source_mac, path.destination_mac)
}

/// What a builder does not make.
fn alter(name: &str, mut frame: Vec<u8>) -> Vec<u8> {
    match name {
        "cut off" => frame.truncate(frame.len() - 9),
        "wrong header checksum" => frame[ETHERNET + 10] ^= 0x55,
        "bytes behind the packet" => {
            let end = frame.len();
            frame[end - 40..].fill(0xee);
        }
        _ => {}
    }
    frame
}

/// A datagram in two: 24 bytes, and the rest.
fn fragments(frame: &[u8], v4: bool, id: u16) -> Vec<Vec<u8>> {
    const FIRST: usize = 24;
    let header = ETHERNET + if v4 { IPV4 } else { IPV6 };
    let (head, payload) = frame.split_at(header);
    let parts = [
        (0, true, &payload[..FIRST]),
        (FIRST / 8, false, &payload[FIRST..]),
    ];
    let fragment = |(offset, more, part): (usize, bool, &[u8])| {
        let mut made = head.to_vec();
        let offset = u16::try_from(offset).unwrap();
        if v4 {
            let length = u16::try_from(IPV4 + part.len()).unwrap();
            made[16..18].copy_from_slice(&length.to_be_bytes());
            let field = offset | if more { 0x2000 } else { 0 };
            made[20..22].copy_from_slice(&field.to_be_bytes());
            made[24..26].fill(0);
            let sum = packet::checksum::checksum(&made[ETHERNET..]);
            made[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            let length = u16::try_from(8 + part.len()).unwrap();
            made[18..20].copy_from_slice(&length.to_be_bytes());
            let next = std::mem::replace(&mut made[20], FRAGMENT);
            let field = offset << 3 | u16::from(more);
            made.extend([next, 0]);
            made.extend(field.to_be_bytes());
            made.extend(u32::from(id).to_be_bytes());
        }
        made.extend(part);
        made
    };
    parts.into_iter().map(fragment).collect()
}

/// The packet of the zoo that a frame carries, as text to be compared: its IP packet without what follows it, and without
/// its identification.
#[must_use]
pub fn describe(frame: &[u8]) -> Option<String> {
    let marked = frame
        .windows(MARK.len())
        .any(|bytes| bytes == MARK.as_bytes());
    let ip = frame.get(ETHERNET..)?;
    let ip = match frame.get(12..ETHERNET)? {
        _ if !marked => return None,
        [0x08, 0x00] => {
            let length = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            let mut ip = ip.get(..length).unwrap_or(ip).to_vec();
            ip[4..6].fill(0);
            ip[10..12].fill(0);
            ip
        }
        [0x86, 0xdd] => {
            let length = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
            let mut ip = ip.get(..IPV6 + length).unwrap_or(ip).to_vec();
            if ip[6] == FRAGMENT {
                ip[IPV6 + 4..IPV6 + 8].fill(0);
            }
            ip
        }
        [0x88, 0x47] => {
            // One label, and below it the packet.
            let (label, packet) = ip.split_first_chunk::<4>()?;
            let protocol = if packet.first()? >> 4 == 4 {
                [0x08, 0x00]
            } else {
                [0x86, 0xdd]
            };
            let inner = [&frame[..12], &protocol, packet].concat();
            return Some(format!("MPLS {label:02x?} {}", describe(&inner)?));
        }
        _ => ip.to_vec(),
    };
    let readable = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte).to_string(),
        other => format!("\\{other:02x}"),
    };
    Some(ip.iter().map(readable).collect())
}
