//! Small captures that only have one thing to say each.

use std::net::{IpAddr, SocketAddr};

use packet::build::{self, Builder, Extension};
use packet::pcap::{ETHERNET, OwnedFrame};

use features::dissect::Tunnels;

/// A capture, and what shall come of it.
pub(crate) struct Case {
    /// If NFStream's rows differ, the difference's heading in the documentation.
    pub(crate) name: &'static str,
    pub(crate) frames: Vec<OwnedFrame>,
    /// Ours; NFStream opens those it knows.
    pub(crate) tunnels: Tunnels,
    pub(crate) expected: Expectation,
}

/// How NFStream's rows and ours compare.
pub(crate) enum Expectation {
    Equal,
    Differ(Difference),
}

/// A documented difference.
pub(crate) struct Difference {
    /// Packets in our rows, and in NFStream's.
    pub(crate) packets: [u64; 2],
    /// Rows that have no counterpart.
    pub(crate) flows: usize,
    /// Columns in which counterparts differ.
    pub(crate) columns: &'static [&'static str],
}

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = super::equal::cases();
    cases.extend(super::differ::cases());
    cases
}

/// A frame of Ethernet at this many microseconds into the capture.
pub(crate) fn at(time_us: u64, frame: Vec<u8>) -> OwnedFrame {
    let original_length = u32::try_from(frame.len()).unwrap();
    OwnedFrame {
        timestamp_ns: (1_700_000_000_000_000 + time_us.cast_signed()) * 1000,
        original_length,
        link_type: ETHERNET,
        frame,
    }
}

/// The first bytes of a frame.
pub(crate) fn cut(mut captured: OwnedFrame, length: usize) -> OwnedFrame {
    captured.frame.truncate(length);
    captured
}

/// A UDP datagram with ten bytes.
pub(crate) fn udp(source: &str, destination: &str) -> Builder {
    build::udp(socket(source), socket(destination)).payload(*b"0123456789")
}

pub(crate) fn tcp(source: &str, destination: &str, flags: u8) -> Builder {
    build::tcp(socket(source), socket(destination), flags, 0)
}

/// A packet of a protocol that is not built here.
pub(crate) fn other(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Builder {
    build::other(ip(source), ip(destination), protocol).payload(payload)
}

pub(crate) fn echo(source: &str, destination: &str) -> Builder {
    build::echo(ip(source), ip(destination)).payload(*b"0123456789")
}

/// An IPv6 fragment header.
pub(crate) fn fragment(offset: u16, more: bool) -> Extension {
    Extension::Fragment { offset, more }
}

/// What follows the Ethernet header of an untagged frame.
pub(crate) fn network(frame: &[u8]) -> Vec<u8> {
    frame[14..].to_vec()
}

/// A frame with another EtherType, and with bytes before its network header.
pub(crate) fn behind(ethertype: u16, bytes: &[u8], frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &ethertype.to_be_bytes(), bytes, &frame[14..]].concat()
}

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
