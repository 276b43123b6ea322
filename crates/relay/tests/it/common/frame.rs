//! Frames as a sender makes them and a receiver must get them, written without the code under test.

use std::net::{IpAddr, SocketAddr};

/// A UDP frame to be built, each part of which a test can spoil.
#[derive(Clone, Debug)]
pub struct Frame {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub payload: Vec<u8>,
    pub tos: u8,
    pub ttl: u8,
    /// VLAN tags: (protocol, tag control).
    pub tags: Vec<(u16, u16)>,
    pub checksum: Checksum,
    /// Added to the lengths in the network and UDP headers.
    pub network_lie: i32,
    pub udp_lie: i32,
    pub fragment: u16,
    pub options: usize,
    /// Bytes after the IP packet.
    pub padding: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Right,
    Wrong,
    /// Only the pseudo-header's sum, as a sender leaves it for its device.
    Partial,
    None,
}

impl Frame {
    pub fn new(source: &str, destination: &str, payload: usize) -> Self {
        Self {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            payload: (0..payload).map(|i| (i * 7 + 3) as u8).collect(),
            tos: 0xb8,
            ttl: 64,
            tags: Vec::new(),
            checksum: Checksum::Right,
            network_lie: 0,
            udp_lie: 0,
            fragment: 0,
            options: 0,
            padding: 0,
        }
    }

    /// With a payload for which the right checksum is what a sender would leave for its device to
    /// complete: one datagram in 65,536 is like that by chance. The payload is of two bytes at least.
    pub fn ambiguous(mut self) -> Self {
        for word in 0..=u16::MAX {
            self.payload[..2].copy_from_slice(&word.to_be_bytes());
            let udp = self.udp();
            let pseudo = pseudo(self.source.ip(), self.destination.ip(), udp.len());
            if half(&udp, 6) == sum(pseudo, &[]) {
                return self;
            }
        }
        panic!("some word makes any sum");
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![0x02, 0, 0, 0, 0x10, 2, 0x02, 0, 0, 0, 0, 9];
        for (protocol, tci) in &self.tags {
            frame.extend(protocol.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        let v4 = self.source.is_ipv4();
        frame.extend(if v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        let udp = self.udp();
        frame.extend(if v4 {
            self.ipv4(udp.len())
        } else {
            self.ipv6(udp.len())
        });
        frame.extend(udp);
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }

    fn udp(&self) -> Vec<u8> {
        let length = (self.payload.len() + 8) as i32 + self.udp_lie;
        let mut udp = Vec::new();
        udp.extend(self.source.port().to_be_bytes());
        udp.extend(self.destination.port().to_be_bytes());
        udp.extend((length as u16).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(&self.payload);
        let pseudo = pseudo(self.source.ip(), self.destination.ip(), udp.len());
        let full = !sum(pseudo, &udp);
        let check = match self.checksum {
            Checksum::Right => {
                if full == 0 {
                    0xffff
                } else {
                    full
                }
            }
            Checksum::Wrong => full ^ 0x0101,
            Checksum::Partial => sum(pseudo, &[]),
            Checksum::None => 0,
        };
        udp[6..8].copy_from_slice(&check.to_be_bytes());
        udp
    }

    fn ipv4(&self, udp: usize) -> Vec<u8> {
        let header = 20 + self.options;
        let length = ((header + udp) as i32 + self.network_lie) as u16;
        let mut ip = vec![0x40 | (header / 4) as u8, self.tos];
        ip.extend(length.to_be_bytes());
        ip.extend([0x12, 0x34]);
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl, 17, 0, 0]);
        ip.extend(octets(self.source.ip()));
        ip.extend(octets(self.destination.ip()));
        ip.resize(header, 1);
        let check = !sum(0, &ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        ip
    }

    fn ipv6(&self, udp: usize) -> Vec<u8> {
        let length = (udp as i32 + self.network_lie) as u16;
        let mut ip = vec![0x60 | self.tos >> 4, self.tos << 4, 0xab, 0xcd];
        ip.extend(length.to_be_bytes());
        ip.extend([17, self.ttl]);
        ip.extend(octets(self.source.ip()));
        ip.extend(octets(self.destination.ip()));
        ip
    }
}

/// A frame as it arrived, its checksums already found right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    pub macs: [u8; 12],
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub tos: u8,
    pub ttl: u8,
    pub payload: Vec<u8>,
    /// Its UDP checksum is left to the device, as between namespaces of one machine.
    pub partial: bool,
}

/// Reads a UDP frame; `None` when it is something else.
///
/// # Panics
/// When its lengths, checksums or constant fields are not as a relay must send them.
pub fn read(frame: &[u8]) -> Option<ReceivedFrame> {
    let macs = frame[..12].try_into().unwrap();
    let ip = &frame[14..];
    let (source, destination, tos, ttl, udp): (IpAddr, IpAddr, _, _, _) = match &frame[12..14] {
        [0x08, 0x00] if ip[9] == 17 => {
            assert_eq!(ip[0], 0x45, "no options");
            assert_eq!(sum(0, &ip[..20]), 0xffff, "IPv4 header checksum");
            assert_eq!(ip[4..8], [0, 0, 0x40, 0], "identification 0, DF");
            assert_eq!(usize::from(half(ip, 2)), ip.len(), "of {frame:02x?}");
            let v4 = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
            (v4(12), v4(16), ip[1], ip[8], &ip[20..])
        }
        [0x86, 0xdd] if ip[6] == 17 => {
            assert_eq!(ip[1] & 0x0f, 0, "flow label 0");
            assert_eq!(ip[2..4], [0, 0], "flow label 0");
            assert_eq!(usize::from(half(ip, 4)), ip.len() - 40, "payload length");
            let v6 = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
            (v6(8), v6(24), ip[0] << 4 | ip[1] >> 4, ip[7], &ip[40..])
        }
        _ => return None,
    };
    assert_eq!(usize::from(half(udp, 4)), udp.len(), "UDP length");
    assert_ne!(half(udp, 6), 0, "a UDP checksum is there");
    let pseudo = pseudo(source, destination, udp.len());
    let partial = half(udp, 6) == sum(pseudo, &[]);
    assert!(partial || sum(pseudo, udp) == 0xffff, "UDP checksum");
    Some(ReceivedFrame {
        macs,
        source: SocketAddr::new(source, half(udp, 0)),
        destination: SocketAddr::new(destination, half(udp, 2)),
        tos,
        ttl,
        payload: udp[8..].to_vec(),
        partial,
    })
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn pseudo(source: IpAddr, destination: IpAddr, length: usize) -> u32 {
    let mut bytes = octets(source);
    bytes.extend(octets(destination));
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend(17_u32.to_be_bytes());
    u32::from(sum(0, &bytes))
}

fn sum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
