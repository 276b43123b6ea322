//! Whole frames for tests and generators: right by default, wrong in one chosen way on request.

use std::net::{IpAddr, SocketAddr};

use crate::{checksum, ethernet, ethertype, ipv4, ipv6, protocol, tcp, udp};

/// What the transport's checksum field holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    #[default]
    Right,
    /// Zero: over IPv4 UDP, none.
    Absent,
    /// The folded pseudo-header sum, as senders leave it for their device to complete.
    Partial,
    /// Off by one.
    Bad,
}

/// An IPv6 extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Hop-by-hop options: padding of this many bytes more than the smallest 8, in units of 8.
    HopByHop(u8),
    /// Destination options, likewise.
    DestinationOptions(u8),
    /// Routing, likewise.
    Routing(u8),
    /// Authentication: this many words more than the smallest 8 bytes.
    Authentication(u8),
    /// Fragment: offset in units of 8 bytes, and whether more follow.
    Fragment { offset: u16, more: bool },
}

#[derive(Clone, Debug)]
enum Transport {
    Udp {
        source: u16,
        destination: u16,
    },
    Tcp {
        source: u16,
        destination: u16,
        flags: u8,
        options: usize,
    },
    Echo,
    Other(u8),
}

/// A frame in the making; [`Builder::frame`] writes it.
#[derive(Clone, Debug)]
pub struct Builder {
    source_mac: ethernet::Address,
    destination_mac: ethernet::Address,
    tags: Vec<(u16, u16)>,
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    ttl: u8,
    identification: u16,
    /// The IPv4 flags and fragment offset field.
    fragment: u16,
    options: Vec<u8>,
    flow_label: u32,
    extensions: Vec<Extension>,
    transport: Transport,
    checksum: Checksum,
    payload: Vec<u8>,
    padding: usize,
}

/// A UDP datagram.
///
/// # Panics
/// When one address is IPv4 and the other IPv6.
pub fn udp(source: SocketAddr, destination: SocketAddr) -> Builder {
    let transport = Transport::Udp {
        source: source.port(),
        destination: destination.port(),
    };
    Builder::new(source.ip(), destination.ip(), transport)
}

/// A TCP segment with these flags and `options` words of no-operation options (up to 10).
///
/// # Panics
/// As [`udp`].
pub fn tcp(source: SocketAddr, destination: SocketAddr, flags: u8, options: u8) -> Builder {
    let transport = Transport::Tcp {
        source: source.port(),
        destination: destination.port(),
        flags,
        options: usize::from(options.min(10)) * 4,
    };
    Builder::new(source.ip(), destination.ip(), transport)
}

/// An echo request, ICMP or ICMPv6 as the addresses are.
///
/// # Panics
/// As [`udp`].
pub fn echo(source: IpAddr, destination: IpAddr) -> Builder {
    Builder::new(source, destination, Transport::Echo)
}

/// A packet of another IP protocol; the payload is all it carries.
///
/// # Panics
/// As [`udp`].
pub fn other(source: IpAddr, destination: IpAddr, protocol: u8) -> Builder {
    Builder::new(source, destination, Transport::Other(protocol))
}

impl Builder {
    fn new(source: IpAddr, destination: IpAddr, transport: Transport) -> Self {
        assert_eq!(
            source.is_ipv4(),
            destination.is_ipv4(),
            "a packet has one address family"
        );
        Self {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            source,
            destination,
            tos: 0,
            ttl: 64,
            identification: 0,
            fragment: 0x4000,
            options: Vec::new(),
            flow_label: 0,
            extensions: Vec::new(),
            transport,
            checksum: Checksum::Right,
            payload: Vec::new(),
            padding: 0,
        }
    }

    #[must_use]
    pub fn macs(mut self, source: ethernet::Address, destination: ethernet::Address) -> Self {
        (self.source_mac, self.destination_mac) = (source, destination);
        self
    }

    /// Adds an inner 802.1Q tag with this control field (the VLAN id is its low 12 bits).
    #[must_use]
    pub fn vlan(self, control: u16) -> Self {
        self.tag(ethertype::VLAN, control)
    }

    /// Adds an inner tag of any EtherType.
    #[must_use]
    pub fn tag(mut self, ethertype: u16, control: u16) -> Self {
        self.tags.push((ethertype, control));
        self
    }

    /// DSCP and ECN; 0 unless set.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// TTL or hop limit; 64 unless set.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    #[must_use]
    pub fn identification(mut self, identification: u16) -> Self {
        self.identification = identification;
        self
    }

    /// IPv4's "don't fragment"; set unless cleared.
    #[must_use]
    pub fn dont_fragment(mut self, set: bool) -> Self {
        self.fragment = self.fragment & !0x4000 | if set { 0x4000 } else { 0 };
        self
    }

    /// Makes it an IPv4 fragment (the IPv6 one is an [`Extension`]); offset in units of 8 bytes.
    /// The checksum covers what this frame carries.
    #[must_use]
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        self.fragment = offset & 0x1fff | if more { 0x2000 } else { 0 };
        self
    }

    /// `words` 32-bit words of IPv4 no-operation options (up to 10).
    #[must_use]
    pub fn options(mut self, words: u8) -> Self {
        self.options = vec![1; usize::from(words.min(10)) * 4];
        self
    }

    #[must_use]
    pub fn flow_label(mut self, label: u32) -> Self {
        self.flow_label = label & 0x000f_ffff;
        self
    }

    /// Adds an IPv6 extension header after those already there.
    #[must_use]
    pub fn extension(mut self, extension: Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// Up to 65 535 bytes less the headers.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Bytes after the IP packet, as short frames have.
    #[must_use]
    pub fn padding(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The frame.
    ///
    /// # Panics
    /// When the payload does not fit an IP packet.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.payload.len() + 128);
        self.write_ethernet(&mut frame);
        let transport = self.transport();
        match self.source {
            IpAddr::V4(_) => self.write_ipv4(&mut frame, transport.len()),
            IpAddr::V6(_) => self.write_ipv6(&mut frame, transport.len()),
        }
        frame.extend_from_slice(&transport);
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    fn write_ethernet(&self, frame: &mut Vec<u8>) {
        frame.extend_from_slice(&self.destination_mac);
        frame.extend_from_slice(&self.source_mac);
        for (ethertype, control) in &self.tags {
            frame.extend_from_slice(&ethertype.to_be_bytes());
            frame.extend_from_slice(&control.to_be_bytes());
        }
        let ethertype = match self.source {
            IpAddr::V4(_) => ethertype::IPV4,
            IpAddr::V6(_) => ethertype::IPV6,
        };
        frame.extend_from_slice(&ethertype.to_be_bytes());
    }

    fn write_ipv4(&self, frame: &mut Vec<u8>, payload: usize) {
        let header = ipv4::HEADER + self.options.len();
        let words = u8::try_from(header / 4).expect("at most 15 words: options are limited");
        let mut ip = vec![0x40 | words, self.tos];
        ip.extend_from_slice(&length(header + payload).to_be_bytes());
        ip.extend_from_slice(&self.identification.to_be_bytes());
        ip.extend_from_slice(&self.fragment.to_be_bytes());
        ip.extend_from_slice(&[self.ttl, self.protocol(), 0, 0]);
        push_address(&mut ip, self.source);
        push_address(&mut ip, self.destination);
        ip.extend_from_slice(&self.options);
        let check = checksum::checksum(&ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        frame.extend_from_slice(&ip);
    }

    fn write_ipv6(&self, frame: &mut Vec<u8>, payload: usize) {
        let mut extensions = Vec::new();
        let mut next = self.protocol();
        for extension in self.extensions.iter().rev() {
            let mut header = extension.header(next, u32::from(self.identification));
            header.append(&mut extensions);
            extensions = header;
            next = extension.protocol();
        }
        let first = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label;
        frame.extend_from_slice(&first.to_be_bytes());
        frame.extend_from_slice(&length(extensions.len() + payload).to_be_bytes());
        frame.extend_from_slice(&[next, self.ttl]);
        push_address(frame, self.source);
        push_address(frame, self.destination);
        debug_assert!(frame.len() >= ipv6::HEADER);
        frame.extend_from_slice(&extensions);
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Udp { .. } => protocol::UDP,
            Transport::Tcp { .. } => protocol::TCP,
            Transport::Echo if self.source.is_ipv4() => protocol::ICMP,
            Transport::Echo => protocol::ICMPV6,
            Transport::Other(protocol) => protocol,
        }
    }

    /// The transport header with its checksum, and the payload.
    fn transport(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.payload.len() + 60);
        let check_at = match self.transport {
            Transport::Udp {
                source,
                destination,
            } => {
                bytes.extend_from_slice(&source.to_be_bytes());
                bytes.extend_from_slice(&destination.to_be_bytes());
                bytes.extend_from_slice(&length(udp::HEADER + self.payload.len()).to_be_bytes());
                bytes.extend_from_slice(&[0, 0]);
                Some(6)
            }
            Transport::Tcp {
                source,
                destination,
                flags,
                options,
            } => {
                bytes.extend_from_slice(&source.to_be_bytes());
                bytes.extend_from_slice(&destination.to_be_bytes());
                bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2]);
                let words = u8::try_from((tcp::HEADER + options) / 4)
                    .expect("at most 15 words: options are limited");
                bytes.extend_from_slice(&[words << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
                bytes.resize(bytes.len() + options, 1);
                Some(16)
            }
            Transport::Echo => {
                let kind = if self.source.is_ipv4() { 8 } else { 128 };
                bytes.extend_from_slice(&[kind, 0, 0, 0, 0, 1, 0, 1]);
                Some(2)
            }
            Transport::Other(_) => None,
        };
        bytes.extend_from_slice(&self.payload);
        if let Some(at) = check_at {
            let check = self.transport_checksum(&bytes);
            bytes[at..at + 2].copy_from_slice(&check.to_be_bytes());
        }
        bytes
    }

    fn transport_checksum(&self, bytes: &[u8]) -> u16 {
        let protocol = self.protocol();
        let pseudo = if protocol == protocol::ICMP {
            0
        } else {
            let length = u32::try_from(bytes.len()).expect("a packet is shorter than 64 KiB");
            checksum::pseudo(self.source, self.destination, protocol, length)
        };
        let right = match !checksum::fold(pseudo + checksum::sum(bytes)) {
            0 if protocol == protocol::UDP => u16::MAX,
            check => check,
        };
        match self.checksum {
            Checksum::Right => right,
            Checksum::Absent => 0,
            Checksum::Partial => checksum::fold(pseudo),
            // Neither zero, which would mean none, nor the other form of zero.
            Checksum::Bad if right >= 0xfffe => 1,
            Checksum::Bad => right + 1,
        }
    }
}

impl Extension {
    fn protocol(self) -> u8 {
        match self {
            Self::HopByHop(_) => protocol::HOP_BY_HOP,
            Self::DestinationOptions(_) => protocol::DESTINATION_OPTIONS,
            Self::Routing(_) => protocol::ROUTING,
            Self::Authentication(_) => protocol::AUTHENTICATION,
            Self::Fragment { .. } => protocol::FRAGMENT,
        }
    }

    fn header(self, next: u8, identification: u32) -> Vec<u8> {
        match self {
            Self::HopByHop(units) | Self::DestinationOptions(units) | Self::Routing(units) => {
                let mut header = vec![0; (usize::from(units) + 1) * 8];
                (header[0], header[1]) = (next, units);
                header
            }
            Self::Authentication(words) => {
                let mut header = vec![0; (usize::from(words) + 2) * 4];
                (header[0], header[1]) = (next, words);
                header
            }
            Self::Fragment { offset, more } => {
                let mut header = vec![next, 0];
                header.extend_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
                header.extend_from_slice(&identification.to_be_bytes());
                header
            }
        }
    }
}

fn push_address(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
    }
}

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or_else(|_| panic!("{bytes} bytes do not fit an IP packet"))
}
