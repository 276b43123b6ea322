//! The counters of one direction of a flow.

use crate::dissect::{Packet, Tcp, tcp_flag};

use super::activity::{Bulks, Gaps, Run, gap_between};
use super::moments::{Lengths, Times};

/// The number of TCP flags. They are in the order of their bits, FIN first.
const FLAGS: usize = 8;

/// All counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Lengths of whole frames on the wire.
    pub wire: Lengths,
    /// Lengths of payloads, empty ones included.
    pub payload: Lengths,
    /// Gaps between packets of this direction.
    pub gaps: Times,
    pub first_ns: i64,
    /// The latest timestamp, even if later packets have earlier ones.
    pub last_ns: i64,
    pub ip_bytes: u64,
    pub ip_header_bytes: u64,
    pub l4_header_bytes: u64,
    /// Packets that carried payload.
    pub payload_packets: u64,
    /// Packets with each TCP flag, in the order of the flag bits.
    pub flags: [u32; FLAGS],
    /// The four bits before the TCP flags, combined over all packets: AE is the lowest, the others are reserved.
    pub reserved: u8,
    pub windows: Option<Windows>,
    pub min_ttl: u8,
    pub max_ttl: u8,
    /// DSCP and ECN of the first packet.
    pub tos: u8,
    /// Length of the shortest transport header, in bytes.
    pub min_l4_header: u32,
    pub bulks: Bulks,
}

/// TCP receive windows as announced, without scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    pub first: u16,
    pub last: u16,
    /// The shift of the window scale option in the SYN.
    pub scale: Option<u8>,
}

impl Direction {
    #[inline]
    pub(super) fn add(&mut self, packet: &Packet<'_>, gaps: &Gaps) {
        if self.wire.count == 0 {
            self.start(packet);
        } else {
            self.gaps.add(gap_between(self.last_ns, packet.time_ns));
            self.last_ns = self.last_ns.max(packet.time_ns);
            self.min_ttl = self.min_ttl.min(packet.ttl);
            self.max_ttl = self.max_ttl.max(packet.ttl);
            self.min_l4_header = self.min_l4_header.min(packet.l4_header);
        }
        self.wire.add(packet.wire_length);
        self.payload.add(packet.payload_length);
        self.ip_bytes += u64::from(packet.ip_length);
        self.ip_header_bytes += u64::from(packet.ip_header);
        self.l4_header_bytes += u64::from(packet.l4_header);
        if packet.payload_length > 0 {
            self.payload_packets += 1;
            self.bulks
                .packet(packet.time_ns, packet.payload_length, gaps);
        }
        if let Some(tcp) = &packet.tcp {
            self.tcp(tcp);
        }
    }

    fn start(&mut self, packet: &Packet<'_>) {
        self.first_ns = packet.time_ns;
        self.last_ns = packet.time_ns;
        self.min_ttl = packet.ttl;
        self.max_ttl = packet.ttl;
        self.tos = packet.tos;
        self.min_l4_header = packet.l4_header;
    }

    fn tcp(&mut self, tcp: &Tcp) {
        let mut flags = tcp.flags;
        while flags != 0 {
            let bit = flags.trailing_zeros() as usize;
            self.flags[bit] += 1;
            flags &= flags - 1;
        }
        self.reserved |= tcp.reserved;
        let windows = self.windows.get_or_insert(Windows {
            first: tcp.window,
            last: tcp.window,
            scale: None,
        });
        windows.last = tcp.window;
        windows.scale = windows.scale.or(tcp.window_scale);
    }

    /// Adds the counts of another CPU for the same direction. The gaps between packets on different CPUs are unknown,
    /// so a merged direction has no gaps.
    pub(crate) fn merge(&mut self, other: Self) {
        if other.packets() == 0 {
            return;
        }
        if self.packets() == 0 {
            *self = other;
            return;
        }
        let (first, last) = if self.first_ns <= other.first_ns {
            (&*self, &other)
        } else {
            (&other, &*self)
        };
        let windows = match (first.windows, last.windows) {
            (Some(mut windows), Some(later)) => {
                windows.last = later.last;
                windows.scale = windows.scale.or(later.scale);
                Some(windows)
            }
            (windows, later) => windows.or(later),
        };
        let mut bulks = self.bulks;
        bulks.count += other.bulks.count;
        bulks.packets += other.bulks.packets;
        bulks.bytes += other.bulks.bytes;
        bulks.duration_ns += other.bulks.duration_ns;
        bulks.run = Run::default();
        *self = Self {
            wire: self.wire.and(&other.wire),
            payload: self.payload.and(&other.payload),
            gaps: Times::default(),
            first_ns: first.first_ns,
            last_ns: self.last_ns.max(other.last_ns),
            ip_bytes: self.ip_bytes + other.ip_bytes,
            ip_header_bytes: self.ip_header_bytes + other.ip_header_bytes,
            l4_header_bytes: self.l4_header_bytes + other.l4_header_bytes,
            payload_packets: self.payload_packets + other.payload_packets,
            flags: std::array::from_fn(|bit| self.flags[bit] + other.flags[bit]),
            reserved: self.reserved | other.reserved,
            windows,
            min_ttl: self.min_ttl.min(other.min_ttl),
            max_ttl: self.max_ttl.max(other.max_ttl),
            tos: first.tos,
            min_l4_header: self.min_l4_header.min(other.min_l4_header),
            bulks,
        };
    }

    pub fn packets(&self) -> u64 {
        self.wire.count
    }

    /// Packets with this flag. `flag` is the flag's bit.
    pub fn flag(&self, flag: u8) -> u64 {
        self.flags[flag.trailing_zeros() as usize].into()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.flag(tcp_flag::FIN) > 0
    }

    /// From the first packet to the last, in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        gap_between(self.first_ns, self.last_ns)
    }
}
