//! Header views, builders and checksums: the twin of lowroad/parse.h.
//!
//! A view is made by `new_checked`, which checks every length once; its accessors then neither
//! fail nor panic. What a header means for a packet's fate is decided elsewhere.

pub mod build;
mod bytes;
pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod parse;
pub mod payload;
pub mod pcap;
pub mod rtp;
pub mod tcp;
pub mod udp;

/// Why a frame cannot be parsed. The numbers are parse.h's verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum ParseError {
    #[error("shorter than an Ethernet header")]
    TruncatedEthernet = 16,
    #[error("VLAN tag cut off")]
    TruncatedVlan = 17,
    #[error("IP header cut off")]
    TruncatedIp = 18,
    #[error("IP version disagrees with the EtherType")]
    BadVersion = 19,
    #[error("IPv4 header length below 20")]
    BadHeaderLength = 20,
    #[error("IP length shorter than its header or longer than the frame")]
    BadTotalLength = 21,
    #[error("IPv6 extension header cut off")]
    TruncatedExtension = 22,
    #[error("transport header cut off")]
    TruncatedTransport = 23,
    #[error("UDP length below 8 or beyond the packet")]
    BadUdpLength = 24,
    #[error("TCP data offset below 20 or beyond the segment")]
    BadDataOffset = 25,
}

/// EtherTypes.
pub mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const QINQ: u16 = 0x88a8;
}

/// IP protocol numbers.
pub mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const ESP: u8 = 50;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NONE: u8 = 59;
    pub const DESTINATION_OPTIONS: u8 = 60;
}
