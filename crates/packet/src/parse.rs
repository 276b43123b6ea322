//! One pass over a frame's headers: the twin of parse_packet() in lowroad/parse.h, with the same
//! fields and the same verdicts.

use std::net::{IpAddr, Ipv4Addr};

use crate::{ParseError, ethernet, ethertype, icmp, ipv4, ipv6, protocol, tcp, udp};

/// VLAN tags read before a frame is given up.
pub const MAX_TAGS: usize = 2;

/// How far a well-formed frame was parsed. The numbers are parse.h's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// Through its UDP, TCP or ICMP header.
    #[default]
    Complete = 0,
    /// Another EtherType; `l3` is where its payload starts.
    NotIp = 1,
    /// Another transport; `l4` is where it starts.
    Unsupported = 2,
    /// Any fragment: the first has its transport header parsed, of later ones `l4` is the data.
    Fragment = 3,
    TooManyTags = 4,
    TooManyExtensions = 5,
}

/// Which part of a fragmented packet a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fragment {
    /// It is whole.
    #[default]
    None = 0,
    First = 1,
    Later = 2,
}

/// The IP header's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    V4,
    V6,
}

/// The headers of a packet. Offsets count from the frame's start; fields that were not reached are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeaders {
    pub verdict: Verdict,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// From the IP header's first byte to the packet's last.
    pub ip_length: usize,
    pub l3: usize,
    pub l4: usize,
    pub payload: usize,
    /// After the tags.
    pub ethertype: u16,
    /// Outermost first; the VLAN id is the low 12 bits.
    pub vlan_tci: [u16; MAX_TAGS],
    pub vlan_tags: u8,
    pub source_port: u16,
    pub destination_port: u16,
    pub udp_length: u16,
    pub family: Option<Family>,
    /// The transport, after extension headers.
    pub protocol: u8,
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    pub fragment: Fragment,
    pub extensions: u8,
    pub tcp_flags: u8,
    pub icmp_type: u8,
    pub icmp_code: u8,
}

/// Parses a whole frame.
pub fn parse(frame: &[u8]) -> Result<PacketHeaders, ParseError> {
    let mut parsed = PacketHeaders::default();
    parsed.read_ethernet(frame)?;
    if ethernet::is_tag(parsed.ethertype) {
        parsed.verdict = Verdict::TooManyTags;
        return Ok(parsed);
    }
    let packet = &frame[parsed.l3..];
    match parsed.ethertype {
        ethertype::IPV4 => parsed.read_ipv4(packet)?,
        ethertype::IPV6 => parsed.read_ipv6(packet)?,
        _ => {
            parsed.verdict = Verdict::NotIp;
            return Ok(parsed);
        }
    }
    match parsed.fragment {
        Fragment::Later => {
            parsed.payload = parsed.l4;
            parsed.verdict = Verdict::Fragment;
        }
        _ if parsed.verdict == Verdict::TooManyExtensions => {}
        fragment => {
            parsed.read_transport(&frame[parsed.l4..parsed.l3 + parsed.ip_length])?;
            if fragment == Fragment::First && parsed.verdict == Verdict::Complete {
                parsed.verdict = Verdict::Fragment;
            }
        }
    }
    Ok(parsed)
}

impl Default for PacketHeaders {
    fn default() -> Self {
        Self {
            verdict: Verdict::default(),
            source: Ipv4Addr::UNSPECIFIED.into(),
            destination: Ipv4Addr::UNSPECIFIED.into(),
            ip_length: 0,
            l3: 0,
            l4: 0,
            payload: 0,
            ethertype: 0,
            vlan_tci: [0; MAX_TAGS],
            vlan_tags: 0,
            source_port: 0,
            destination_port: 0,
            udp_length: 0,
            family: None,
            protocol: 0,
            ttl: 0,
            tos: 0,
            fragment: Fragment::None,
            extensions: 0,
            tcp_flags: 0,
            icmp_type: 0,
            icmp_code: 0,
        }
    }
}

impl PacketHeaders {
    fn read_ethernet(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        self.ethertype = ethernet::Frame::new_checked(frame)?.ethertype();
        self.l3 = ethernet::HEADER;
        for tci in &mut self.vlan_tci {
            if !ethernet::is_tag(self.ethertype) {
                break;
            }
            let tag = ethernet::VlanTag::new_checked(&frame[self.l3..])?;
            *tci = tag.control();
            self.vlan_tags += 1;
            self.ethertype = tag.ethertype();
            self.l3 += ethernet::TAG;
        }
        Ok(())
    }

    fn read_ipv4(&mut self, packet: &[u8]) -> Result<(), ParseError> {
        let ip = ipv4::Packet::new_checked(packet)?;
        self.family = Some(Family::V4);
        self.source = ip.source().into();
        self.destination = ip.destination().into();
        self.ip_length = ip.total_len();
        self.tos = ip.tos();
        self.ttl = ip.ttl();
        self.protocol = ip.protocol();
        self.l4 = self.l3 + ip.header_len();
        self.fragment = match (ip.fragment_offset(), ip.more_fragments()) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        Ok(())
    }

    fn read_ipv6(&mut self, packet: &[u8]) -> Result<(), ParseError> {
        let ip = ipv6::Packet::new_checked(packet)?;
        self.family = Some(Family::V6);
        self.source = ip.source().into();
        self.destination = ip.destination().into();
        self.ip_length = ip.total_len();
        self.tos = ip.traffic_class();
        self.ttl = ip.hop_limit();
        let upper = ip.upper()?;
        self.protocol = upper.protocol;
        self.l4 = self.l3 + upper.offset;
        self.fragment = upper.fragment;
        self.extensions = upper.extensions;
        if ipv6::is_extension(upper.protocol) && upper.fragment != Fragment::Later {
            self.verdict = Verdict::TooManyExtensions;
        }
        Ok(())
    }

    fn read_transport(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        let icmp = match self.family {
            Some(Family::V6) => protocol::ICMPV6,
            _ => protocol::ICMP,
        };
        match self.protocol {
            protocol::UDP => self.read_udp(bytes),
            protocol::TCP => self.read_tcp(bytes),
            transport if transport == icmp => self.read_icmp(bytes),
            _ => {
                self.payload = self.l4;
                self.verdict = Verdict::Unsupported;
                Ok(())
            }
        }
    }

    fn read_udp(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        let udp = match self.fragment {
            Fragment::First => udp::Packet::new_fragment(bytes)?,
            _ => udp::Packet::new_checked(bytes)?,
        };
        self.source_port = udp.source_port();
        self.destination_port = udp.destination_port();
        self.udp_length = u16::try_from(udp.len()).unwrap_or(u16::MAX);
        self.payload = self.l4 + udp::HEADER;
        Ok(())
    }

    fn read_tcp(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        let tcp = tcp::Packet::new_checked(bytes)?;
        self.source_port = tcp.source_port();
        self.destination_port = tcp.destination_port();
        self.tcp_flags = tcp.flags();
        self.payload = self.l4 + tcp.header_len();
        Ok(())
    }

    fn read_icmp(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        let icmp = icmp::Packet::new_checked(bytes)?;
        self.icmp_type = icmp.kind();
        self.icmp_code = icmp.code();
        self.payload = self.l4 + icmp::HEADER;
        Ok(())
    }
}
