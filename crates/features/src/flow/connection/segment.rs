//! The fields of a segment that the analysis of TCP connections uses.

use crate::dissect::{Packet, tcp_flag};

use super::options::{self, TcpOption};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) time_ns: i64,
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    /// The window as sent, without scaling.
    pub(super) window: u16,
    /// Bytes of payload, according to the headers.
    pub(super) payload: u32,
    pub(super) timestamps: Option<Timestamps>,
}

/// The timestamps option (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timestamps {
    pub(super) value: u32,
    pub(super) echo: u32,
}

impl Segment {
    /// The segment in a packet; `None` without a complete TCP header.
    pub(super) fn of(packet: &Packet<'_>) -> Option<Self> {
        let tcp = packet.tcp.filter(|_| !packet.headless)?;
        Some(Self {
            time_ns: packet.time_ns,
            flags: tcp.flags,
            sequence: tcp.sequence,
            acknowledgement: tcp.acknowledgement,
            window: tcp.window,
            payload: packet.payload_length,
            timestamps: timestamps(options::bytes(packet)),
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number of sequence numbers that it consumes. The payload of an RST is not part of the stream.
    pub(super) fn length(&self) -> u32 {
        let payload = if self.has(tcp_flag::RST) {
            0
        } else {
            self.payload
        };
        payload
            .wrapping_add(self.has(tcp_flag::SYN).into())
            .wrapping_add(self.has(tcp_flag::FIN).into())
    }

    /// The sequence number after the segment.
    pub(super) fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.length())
    }
}

/// The distance from `from` to `to`; negative if `to` comes first.
pub(super) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

fn timestamps(bytes: &[u8]) -> Option<Timestamps> {
    // Fast path: most segments have only this option, after two NOPs.
    if let [1, 1, rest @ ..] = bytes
        && let Some((TcpOption::Timestamps(timestamps), _)) = options::first(rest)
    {
        return Some(timestamps);
    }
    options::all(bytes).find_map(|option| match option {
        TcpOption::Timestamps(timestamps) => Some(timestamps),
        _ => None,
    })
}
