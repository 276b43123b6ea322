//! One side of a TCP connection as Zeek sees it: its state, and the sequence numbers by which letters of the
//! history are told apart.

use crate::dissect::tcp_flag;

use super::segment::{Segment, distance};
use super::stream::Stream;

/// How far one side has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It has sent nothing that counts.
    #[default]
    Inactive,
    SynSent,
    /// It has started the connection with SYN and ACK.
    SynAckSent,
    /// Its first segment was no SYN.
    Partial,
    Established,
    /// It has sent FIN.
    Closed,
    Reset,
}

impl State {
    /// It has sent nothing, or nothing that starts a connection.
    pub(super) fn is_inactive(self) -> bool {
        matches!(self, Self::Inactive | Self::Partial)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpEndpoint {
    pub(super) state: State,
    /// The state before the last change.
    pub(super) previous: State,
    /// The initial sequence number; of a connection that was joined later, one before the first that was seen.
    pub(super) start: u32,
    /// Behind the highest byte that it has sent.
    pub(super) last: u32,
    /// The highest acknowledgement of what it has sent.
    pub(super) acknowledged: u32,
    /// Behind its FIN.
    pub(super) fin_end: Option<u32>,
    pub(super) stream: Stream,
    /// The sequence numbers of its latest SYN, FIN and RST.
    pub(super) latest_syn: u32,
    pub(super) latest_fin: u32,
    pub(super) latest_reset: u32,
    /// Its latest window, not scaled, is 0.
    pub(super) has_zero_window: bool,
    /// Segments that announce a window of 0, SYN, FIN and RST left out.
    pub(super) zero_windows: u64,
    /// What letters of the history count.
    pub(super) counts: Counts,
}

/// Events with letters by powers of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) gaps: u32,
    pub(super) repetitions: u32,
    pub(super) zero_windows: u32,
}

/// A sequence number of SYN or RST that is farther away than this is not believed.
const MAX_JUMP: i32 = 1 << 20;

impl TcpEndpoint {
    pub(super) fn enter(&mut self, state: State) {
        if state != self.state {
            self.previous = std::mem::replace(&mut self.state, state);
        }
    }

    /// Takes sequence numbers from the first segment, or from a SYN that starts the connection anew.
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
        // This segment repeats no earlier bytes.
        self.last = if synchronizes {
            segment.end()
        } else {
            segment.sequence
        };
        self.stream.start(segment);
    }

    /// Takes sequence numbers from an acknowledgement, before the side itself has sent anything.
    pub(super) fn expect(&mut self, acknowledgement: u32) {
        self.start = acknowledgement.wrapping_sub(1);
        self.last = self.start;
        self.acknowledged = self.start;
    }

    /// Takes the other side's acknowledgement: whether it can be one.
    pub(super) fn acknowledge(&mut self, segment: &Segment) -> bool {
        let acknowledgement = segment.acknowledgement;
        if distance(self.start, acknowledgement) < 0 {
            return false;
        }
        let ahead = distance(self.acknowledged, acknowledgement);
        // A number of 0 far ahead is rather a broken one.
        let is_broken = acknowledgement == 0 && ahead > MAX_JUMP;
        if ahead > 0 && !is_broken && !segment.has(tcp_flag::RST) {
            self.acknowledged = acknowledgement;
        }
        true
    }

    /// Takes the end of a segment: whether the segment has payload that does not go beyond what was sent.
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

    /// Whether the stream of this side can be followed: established, or closed after that.
    pub(super) fn is_clean(&self) -> bool {
        self.state == State::Established
            || self.state == State::Closed && self.previous == State::Established
    }

    /// Whether it has sent no byte, by the sequence numbers.
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
