//! A flow: the packets of both directions of a conversation, from a start to an end.

mod activity;
mod connection;
mod contents;
mod direction;
mod moments;
mod place;
mod remarks;
mod table;
mod wheel;

pub(crate) use activity::Run;
pub use activity::{Bulks, Gaps, Periods};
pub use connection::{Connection, Segments};
pub use contents::Contents;
pub use direction::{Direction, Windows};
pub use moments::{Lengths, Times};
pub use place::Place;
pub use remarks::{Classification, Remarks};
pub use table::{Limits, Table, Timers};

use twox_hash::XxHash64;

use crate::dissect::{Icmp, Packet, Tcp, Tunnel, tcp_flag};
use crate::key::{Endpoint, Key, Sender};
use activity::gap_between;

/// Why a row was exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No packet arrived for the idle timeout.
    Idle,
    /// The flow has lasted for the active timeout.
    Active,
    /// A FIN was sent in both directions, or an RST, and no packet followed.
    Closed,
    /// The capture ended, or the program was stopped.
    Stopped,
    /// The table was full.
    Full,
    /// Not an end, but an early row about the flow's first packets. The flow's last row has the same id.
    Early,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::Closed => "closed",
            Self::Stopped => "stopped",
            Self::Full => "full",
            Self::Early => "early",
        }
    }
}

/// One of a flow's first packets: its length, and the gap to the packet before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Length of the payload; negative in the backward direction.
    pub payload: i32,
    /// Length of the frame; negative in the backward direction. It is never zero, so its sign is always meaningful.
    pub wire: i32,
    pub gap_ns: u64,
}

/// The accumulators of a flow. The schemas define the features that are computed from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub key: Key,
    /// The endpoint whose packets are forward.
    pub initiator: Sender,
    /// The sender of the first packet. It is not the initiator if that packet answers a SYN that was not seen.
    pub opener: Sender,
    pub forward: Direction,
    pub backward: Direction,
    /// Gaps between packets of either direction.
    pub gaps: Times,
    pub periods: Periods,
    pub steps: Vec<Step>,
    pub first_ns: i64,
    pub last_ns: i64,
    pub icmp: Option<Icmp>,
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    pub vlan: u16,
    /// The first packet was not a TCP SYN.
    pub midstream: bool,
    /// On the heap, because few flows have any. This keeps the memory that each packet touches small.
    pub(crate) remarks: Option<Box<Remarks>>,
    /// The findings in the first payloads; empty if payloads are not read.
    pub contents: Contents,
    /// The state of the connection; `None` if connections are not tracked.
    pub connection: Option<Box<Connection>>,
    pub end: End,
    pub(crate) closing: Closing,
}

/// Flows make up most of a table's memory, and the allocator's next size class is an eighth larger.
const _: () = assert!(size_of::<Flow>() <= 768);

/// How far a TCP connection has been closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closing {
    /// The initial sequence number of the first SYN. It is separate from its flag because an `Option` would be larger.
    sequence: u32,
    has_sequence: bool,
    pub(crate) reset: bool,
}

impl Closing {
    pub(crate) fn new(initial: Option<u32>, reset: bool) -> Self {
        Self {
            sequence: initial.unwrap_or(0),
            has_sequence: initial.is_some(),
            reset,
        }
    }

    /// The initial sequence number of the first SYN.
    pub(crate) fn initial(self) -> Option<u32> {
        self.has_sequence.then_some(self.sequence)
    }

    /// Adds a later part of the same flow.
    pub(crate) fn and(self, later: Self) -> Self {
        let first = if self.has_sequence { self } else { later };
        Self {
            reset: self.reset || later.reset,
            ..first
        }
    }
}

impl Flow {
    /// A flow that starts with this packet. The packet itself is not added yet.
    pub fn start(packet: &Packet<'_>) -> Self {
        // The packet answers a SYN that was not seen, so its sender did not start the conversation.
        let answer = packet.has_flag(tcp_flag::SYN) && packet.has_flag(tcp_flag::ACK);
        let initiator = if answer {
            packet.sender.other()
        } else {
            packet.sender
        };
        let (mut source_mac, mut destination_mac) =
            (packet.link.source_mac, packet.link.destination_mac);
        if answer {
            std::mem::swap(&mut source_mac, &mut destination_mac);
        }
        Self {
            key: packet.key,
            initiator,
            opener: packet.sender,
            forward: Direction::default(),
            backward: Direction::default(),
            gaps: Times::default(),
            periods: Periods::default(),
            steps: Vec::new(),
            first_ns: packet.time_ns,
            last_ns: packet.time_ns,
            icmp: packet.icmp,
            source_mac,
            destination_mac,
            vlan: packet.link.vlan,
            midstream: packet.is_tcp() && (answer || !packet.has_flag(tcp_flag::SYN)),
            remarks: None,
            contents: Contents::default(),
            connection: None,
            end: End::Stopped,
            closing: Closing::new(opening(packet), false),
        }
    }

    /// Counts a packet of this flow.
    #[inline]
    pub fn add(&mut self, packet: &Packet<'_>, gaps: &Gaps, most_steps: usize) {
        let gap_ns = gap_between(self.last_ns, packet.time_ns);
        let forward = packet.sender == self.initiator;
        if self.packets() > 0 {
            if packet.time_ns < self.last_ns {
                self.remarks.get_or_insert_default().out_of_order += 1;
            }
            self.gaps.add(gap_ns);
            self.periods.gap(gap_ns, gaps);
        }
        self.last_ns = self.last_ns.max(packet.time_ns);
        if self.steps.len() < most_steps {
            self.step(packet, forward, gap_ns, most_steps);
        }
        let (own, opposite) = if forward {
            (&mut self.forward, &mut self.backward)
        } else {
            (&mut self.backward, &mut self.forward)
        };
        own.add(packet, gaps);
        if packet.payload_length > 0 {
            opposite.bulks.interrupt();
        }
        if Remarks::on(packet) {
            let remarks = self.remarks.get_or_insert_default();
            remarks.add(packet, forward);
        }
        if packet.tcp.is_some() {
            self.tcp(packet);
        }
    }

    fn step(&mut self, packet: &Packet<'_>, forward: bool, gap_ns: u64, most: usize) {
        let kept = self.steps.len();
        if kept == self.steps.capacity() {
            // Most flows end with the second packet.
            let room = if kept == 0 { most.min(2) } else { most };
            self.steps.reserve_exact(room - kept);
        }
        let signed = |length: u32| {
            let length = i32::try_from(length).unwrap_or(i32::MAX);
            if forward { length } else { -length }
        };
        self.steps.push(Step {
            payload: signed(packet.payload_length),
            wire: signed(packet.wire_length),
            gap_ns,
        });
    }

    /// Reads the payload of a packet that was added, if it may contain a finding. `gathered` is the number of bytes
    /// that all flows buffer for unfinished ClientHellos.
    #[inline]
    fn read(&mut self, packet: &Packet<'_>, gathered: &mut usize) {
        let backward = packet.sender != self.initiator;
        if !self.contents.wants(packet, backward.into()) {
            return;
        }
        let is_known = !backward && !self.midstream;
        let initial = self.closing.initial().filter(|_| is_known);
        let first = initial.map(|initial| initial.wrapping_add(1));
        self.contents.read(packet, backward.into(), first, gathered);
    }

    /// Updates the state of the connection with a packet that was added.
    fn follow(&mut self, packet: &Packet<'_>) {
        let is_by = |sender| sender == self.initiator;
        let (is_first_forward, is_forward) = (is_by(self.opener), is_by(packet.sender));
        let connection = self
            .connection
            .get_or_insert_with(|| Box::new(Connection::start(packet, is_first_forward)));
        connection.add(packet, is_forward);
    }

    /// Updates how far the TCP connection has been closed.
    #[inline]
    fn tcp(&mut self, packet: &Packet<'_>) {
        self.closing.reset |= packet.has_flag(tcp_flag::RST);
        if !self.closing.has_sequence {
            self.closing = Closing::new(opening(packet), self.closing.reset);
        }
    }

    /// The anomalies of the flow's packets.
    pub fn remarks(&self) -> Remarks {
        self.remarks.as_deref().copied().unwrap_or_default()
    }

    pub fn packets(&self) -> u64 {
        self.forward.packets() + self.backward.packets()
    }

    /// Whether the TCP connection has ended: by an RST, or by a FIN in both directions.
    fn is_closed(&self) -> bool {
        self.closing.reset || (self.forward.has_ended() && self.backward.has_ended())
    }

    /// Whether this packet opens a new connection between the same endpoints.
    fn is_reopened_by(&self, packet: &Packet<'_>) -> bool {
        let opening = opening(packet);
        opening.is_some() && opening != self.closing.initial() && self.has_ended_once()
    }

    /// Whether at least one side has ended the TCP connection.
    pub(crate) fn has_ended_once(&self) -> bool {
        self.closing.reset || self.forward.has_ended() || self.backward.has_ended()
    }

    /// An id that is the same for the same key and start, on every datapath and in every run. It includes the initial
    /// sequence number of a SYN that starts the flow, because a port can be reused before the clock of a capture has
    /// advanced.
    pub fn id(&self) -> u64 {
        let mut bytes = [0; 60];
        bytes[..48].copy_from_slice(&self.key.bytes());
        bytes[48..56].copy_from_slice(&self.first_ns.to_be_bytes());
        match self.closing.initial().filter(|_| !self.midstream) {
            Some(initial) => {
                bytes[56..].copy_from_slice(&initial.to_be_bytes());
                XxHash64::oneshot(0, &bytes)
            }
            None => XxHash64::oneshot(0, &bytes[..56]),
        }
    }

    pub fn source(&self) -> Endpoint {
        self.key.endpoint(self.initiator)
    }

    pub fn destination(&self) -> Endpoint {
        self.key.endpoint(self.initiator.other())
    }

    /// The tunnel of the packets sent by this endpoint.
    pub fn tunnel(&self, sender: Sender) -> Option<Tunnel> {
        let side = usize::from(sender != self.initiator);
        self.remarks.as_ref()?.tunnels[side]
    }

    /// From the first packet to the last, in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        gap_between(self.first_ns, self.last_ns)
    }

    /// Frames of both directions.
    pub fn wire(&self) -> Lengths {
        self.forward.wire.and(&self.backward.wire)
    }

    /// Payloads of both directions.
    pub fn payload(&self) -> Lengths {
        self.forward.payload.and(&self.backward.payload)
    }

    /// Packets of either direction with this flag. `flag` is the flag's bit.
    pub fn flag(&self, flag: u8) -> u64 {
        self.forward.flag(flag) + self.backward.flag(flag)
    }
}

/// The initial sequence number of a packet that opens a connection.
fn opening(packet: &Packet<'_>) -> Option<u32> {
    let opens = |tcp: &Tcp| tcp.flags & (tcp_flag::SYN | tcp_flag::ACK) == tcp_flag::SYN;
    packet.tcp.filter(opens).map(|tcp| tcp.sequence)
}
