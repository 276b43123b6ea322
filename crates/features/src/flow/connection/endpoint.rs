//! One side of a TCP connection as Zeek models it: its state, and the sequence numbers that determine the letters of
//! the history.

use crate::dissect::tcp_flag;

use super::segment::{Segment, distance};
use super::stream::Stream;

/// The state of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It has sent nothing that affects the state.
    #[default]
    Inactive,
    SynSent,
    /// It has started the connection with SYN and ACK.
    SynAckSent,
    /// Its first segment was not a SYN.
    Partial,
    Established,
    /// It has sent FIN.
    Closed,
    Reset,
}

impl State {
    /// Whether it has sent nothing, or nothing that starts a connection.
    pub(super) fn is_inactive(self) -> bool {
        matches!(self, Self::Inactive | Self::Partial)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpEndpoint {
    pub(super) state: State,
    /// The state before the last transition.
    pub(super) previous: State,
    /// The initial sequence number. If the start was not seen, one less than the first number seen.
    pub(super) start: u32,
    /// The sequence number after the highest byte that it has sent.
    pub(super) last: u32,
    /// The highest acknowledgement of its data.
    pub(super) acknowledged: u32,
    /// The sequence number after its FIN.
    pub(super) fin_end: Option<u32>,
    pub(super) stream: Stream,
    /// The sequence numbers of its latest SYN, FIN and RST.
    pub(super) latest_syn: u32,
    pub(super) latest_fin: u32,
    pub(super) latest_reset: u32,
    /// Whether its latest window is 0. Windows are not scaled.
    pub(super) has_zero_window: bool,
    /// Segments that announce a window of 0, except SYN, FIN and RST.
    pub(super) zero_windows: u64,
    /// Counts of the events behind some letters of the history.
    pub(super) counts: Counts,
}

/// Counts of events whose letters are repeated at powers of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) gaps: u32,
    pub(super) repetitions: u32,
    pub(super) zero_windows: u32,
}

/// A SYN or RST whose sequence number is farther away than this is ignored.
const MAX_JUMP: i32 = 1 << 20;

impl TcpEndpoint {
    pub(super) fn enter(&mut self, state: State) {
        if state != self.state {
            self.previous = std::mem::replace(&mut self.state, state);
        }
    }

    /// Initializes the sequence numbers from the first segment, or from a SYN that restarts the connection.
    pub(super) fn synchronize(&mut self, segment: &Segment) {
        let synchronizes = segment.has(tcp_flag::SYN);
        let starts = match self.state {
            State::Inactive => true,
            State::SynSent | State::SynAckSent | State::Established | State::Partial => {
                synchronizes && segment.sequence != self.start
            }
            State::Reset => synchronizes && self.previous == State::Inactive,
            State::Closed => false,
        };
        if !starts {
            return;
        }
        let before_first = u32::from(!synchronizes);
        self.start = segment.sequence.wrapping_sub(before_first);
        self.acknowledged = self.start;
        // This segment does not repeat earlier bytes.
        self.last = if synchronizes {
            segment.end()
        } else {
            segment.sequence
        };
        self.stream.start(segment);
    }

    /// Initializes the sequence numbers from an acknowledgement, before the side has sent anything.
    pub(super) fn expect(&mut self, acknowledgement: u32) {
        self.start = acknowledgement.wrapping_sub(1);
        self.last = self.start;
        self.acknowledged = self.start;
    }

    /// Applies the other side's acknowledgement. Returns whether it is plausible.
    pub(super) fn acknowledge(&mut self, segment: &Segment) -> bool {
        let acknowledgement = segment.acknowledgement;
        if distance(self.start, acknowledgement) < 0 {
            return false;
        }
        let ahead = distance(self.acknowledged, acknowledgement);
        // An acknowledgement of 0 far ahead is more likely invalid.
        let is_broken = acknowledgement == 0 && ahead > MAX_JUMP;
        if ahead > 0 && !is_broken && !segment.has(tcp_flag::RST) {
            self.acknowledged = acknowledgement;
        }
        true
    }

    /// Applies the end of a segment. Returns whether its payload ends at or before the highest byte sent.
    pub(super) fn advance(&mut self, segment: &Segment) -> bool {
        let ahead = distance(self.last, segment.end());
        let (syn, fin, reset) = (
            segment.has(tcp_flag::SYN),
            segment.has(tcp_flag::FIN),
            segment.has(tcp_flag::RST),
        );
        if (syn || reset) && !(-MAX_JUMP..=MAX_JUMP).contains(&ahead) {
            return false;
        }
        if fin && self.last == self.start.wrapping_add(1) {
            self.last = segment.end();
        } else if self.state == State::Reset {
            return false;
        } else if ahead > 0 {
            self.last = segment.end();
        } else {
            return segment.payload > 0;
        }
        false
    }

    /// Whether the stream of this side can be tracked: it is established, or was closed after that.
    pub(super) fn is_clean(&self) -> bool {
        self.state == State::Established
            || self.state == State::Closed && self.previous == State::Established
    }

    /// Whether it has sent no byte, according to the sequence numbers.
    pub(super) fn is_empty(&self, other: &Self) -> bool {
        let acknowledged = self.acknowledged.wrapping_sub(self.start);
        let aborted = self.previous == State::SynSent
            && self.state == State::Reset
            && other.state == State::Inactive;
        if aborted && acknowledged > 1 {
            return true;
        }
        let sent = if distance(self.acknowledged, self.last) > 0 {
            self.last.wrapping_sub(self.start)
        } else {
            acknowledged
        };
        sent <= 1 + u32::from(self.fin_end.is_some())
    }
}
