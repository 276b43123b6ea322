//! A flow as a connection: state and history as defined by Zeek and, for TCP, statistics of sequence numbers and
//! timestamps. It is computed only for schemas with such columns.

mod checksum;
mod endpoint;
mod fingerprint;
mod history;
mod options;
mod rtt;
mod segment;
mod states;
mod stream;

use packet::protocol;

use crate::dissect::{Packet, tcp_flag};
use history::{Event, History, Side};
use rtt::RoundTrips;
use segment::Segment;
use states::States;

/// The reordering limit if no handshake was seen. A missing range that arrives within it may be late instead of lost.
const REORDERING_NS: u64 = 3_000_000;

/// A TCP connection, or the exchange between two UDP ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    history: History,
    wrong_checksums: [u32; 2],
    /// The sides that have sent a datagram.
    is_active: [bool; 2],
    is_udp: bool,
    tcp: Option<Box<Tcp>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tcp {
    states: States,
    round_trips: RoundTrips,
    /// The fingerprint of the originator's first SYN.
    fingerprint: Option<Box<str>>,
}

/// The segment statistics of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segments {
    pub retransmissions: u64,
    pub out_of_order: u64,
    pub zero_windows: u64,
    /// Nanoseconds from a timestamp that the side sent to its echo.
    pub rtt_min_ns: Option<u64>,
    pub rtt_mean_ns: Option<f64>,
}

/// The upper limit of a fingerprint's length: options have at most 40 bytes, and each quirk occurs once.
const MAX_FINGERPRINT: usize = 320;

/// The documented maximum of heap memory per flow.
const _: () = assert!(
    size_of::<Connection>()
        + history::MAX_BYTES
        + size_of::<Tcp>()
        + 2 * (stream::MAX_BYTES + rtt::MAX_BYTES)
        + MAX_FINGERPRINT
        <= 1536
);

impl Connection {
    /// Starts a connection whose first packet was sent by the originator or by the responder.
    pub(super) fn start(packet: &Packet<'_>, is_by_originator: bool) -> Self {
        Self {
            history: if is_by_originator {
                History::default()
            } else {
                History::flipped()
            },
            is_udp: packet.key.protocol == protocol::UDP,
            ..Self::default()
        }
    }

    /// Adds the next packet. One with a wrong checksum is not delivered to its receiver, so only the history changes.
    pub(super) fn add(&mut self, packet: &Packet<'_>, is_by_originator: bool) {
        let side = Side::from(!is_by_originator);
        if packet.headless || !(packet.is_tcp() || self.is_udp) {
            return;
        }
        if checksum::is_wrong(packet) {
            let count = &mut self.wrong_checksums[side];
            self.history.scaled(side, 'c', count);
            return;
        }
        if self.is_udp {
            self.is_active[side] = true;
            self.history.once(side, Event::Data, 'd');
        } else if let Some(segment) = Segment::of(packet) {
            self.segment(packet, side, &segment);
        }
    }

    fn segment(&mut self, packet: &Packet<'_>, side: Side, segment: &Segment) {
        const OPENING: u8 = tcp_flag::SYN | tcp_flag::ACK | tcp_flag::FIN | tcp_flag::RST;

        let tcp = self.tcp.get_or_insert_default();
        if side == 0 && segment.flags & OPENING == tcp_flag::SYN && tcp.fingerprint.is_none() {
            tcp.fingerprint = fingerprint::of(packet);
        }
        tcp.round_trips.segment(side, segment);
        let handshake = &tcp.round_trips.handshake;
        let reordering_ns = handshake.total_ns().unwrap_or(REORDERING_NS);
        let history = &mut self.history;
        tcp.states.segment(side, segment, reordering_ns, history);
    }

    /// The state, as named in Zeek's conn.log.
    pub fn state(&self) -> &'static str {
        match (&self.tcp, self.is_active) {
            (Some(tcp), _) => tcp.states.name(&self.history),
            (None, [true, true]) => "SF",
            (None, [true, false]) => "S0",
            (None, [false, true]) => "SHR",
            (None, [false, false]) => "OTH",
        }
    }

    /// The history, in the letters of Zeek's conn.log; `None` if it is empty.
    pub fn history(&self) -> Option<&str> {
        Some(self.history.letters()).filter(|letters| !letters.is_empty())
    }

    /// The segment statistics of a side of a TCP connection: 0 is the originator.
    pub fn segments(&self, side: usize) -> Option<Segments> {
        let tcp = self.tcp.as_ref()?;
        let (end, echoes) = (
            tcp.states.ends.get(side)?,
            tcp.round_trips.timestamps.get(side)?,
        );
        Some(Segments {
            retransmissions: end.stream.retransmissions,
            out_of_order: end.stream.out_of_order,
            zero_windows: end.zero_windows,
            rtt_min_ns: echoes.least_ns(),
            rtt_mean_ns: echoes.mean_ns(),
        })
    }

    /// Nanoseconds from the SYN to the SYN with ACK.
    pub fn answer_ns(&self) -> Option<u64> {
        self.tcp.as_ref()?.round_trips.handshake.answer_ns
    }

    /// Nanoseconds from the SYN with ACK to the ACK.
    pub fn end_of_handshake_ns(&self) -> Option<u64> {
        self.tcp.as_ref()?.round_trips.handshake.end_ns
    }

    /// The fingerprint of the originator's SYN in the form of p0f's signatures.
    pub fn syn_fingerprint(&self) -> Option<&str> {
        self.tcp.as_ref()?.fingerprint.as_deref()
    }
}
