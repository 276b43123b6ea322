//! Round-trip times of a TCP connection, measured separately for the path on each side of the capture point.

use crate::dissect::tcp_flag::{ACK, RST, SYN};

use super::history::Side;
use super::segment::{Segment, distance};

/// The maximum number of pending timestamps per direction. Further ones are ignored until an echo arrives.
const MAX_PENDING: usize = 8;
/// Bytes of the pending timestamps.
pub(super) const MAX_BYTES: usize = MAX_PENDING * size_of::<(u32, i64)>();

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundTrips {
    pub(super) handshake: Handshake,
    /// Indexed by the side that sent the timestamp.
    pub(super) timestamps: [Echoes; 2],
}

/// The handshake. A retransmitted segment yields no measurement, because the answer may belong to either copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handshake {
    syn: Option<SentSegment>,
    answer: Option<SentSegment>,
    is_over: bool,
    /// Nanoseconds from the SYN to the SYN with ACK.
    pub(super) answer_ns: Option<u64>,
    /// Nanoseconds from the SYN with ACK to the ACK.
    pub(super) end_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SentSegment {
    sequence: u32,
    time_ns: i64,
    is_repeated: bool,
}

/// Times from timestamps of one direction to their echoes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Echoes {
    /// Timestamp values with the times at which they were sent, oldest first.
    pending: Vec<(u32, i64)>,
    newest: Option<u32>,
    count: u64,
    least_ns: u64,
    sum_ns: u64,
}

impl RoundTrips {
    pub(super) fn segment(&mut self, side: Side, segment: &Segment) {
        if !self.handshake.is_over {
            self.handshake.segment(side, segment);
        }
        let Some(timestamps) = segment.timestamps else {
            return;
        };
        if segment.has(ACK) {
            self.timestamps[1 - side].echo(timestamps.echo, segment.time_ns);
        }
        // Only segments that consume sequence numbers are acknowledged at once.
        if segment.length() > 0 && !segment.has(RST) {
            self.timestamps[side].sent(timestamps.value, segment.time_ns);
        }
    }
}

impl Handshake {
    fn segment(&mut self, side: Side, segment: &Segment) {
        let (sequence, time_ns) = (segment.sequence, segment.time_ns);
        match (side, segment.has(SYN), segment.has(ACK)) {
            (0, true, false) if self.answer.is_none() => note(&mut self.syn, sequence, time_ns),
            (1, true, true) => {
                if self.answer.is_none() {
                    self.answer_ns = since(self.syn, segment);
                }
                note(&mut self.answer, sequence, time_ns);
            }
            (0, false, true) if self.answer.is_some() => {
                self.is_over = true;
                self.end_ns = since(self.answer, segment);
            }
            _ => {}
        }
        self.is_over |= segment.has(RST);
    }

    /// Nanoseconds from the SYN to the ACK.
    pub(super) fn total_ns(&self) -> Option<u64> {
        Some(self.answer_ns? + self.end_ns?)
    }
}

fn note(sent: &mut Option<SentSegment>, sequence: u32, time_ns: i64) {
    let is_repeated = sent.is_some_and(|sent| sent.sequence == sequence);
    *sent = Some(SentSegment {
        sequence,
        time_ns,
        is_repeated,
    });
}

/// The time since the segment that this one acknowledges.
fn since(sent: Option<SentSegment>, segment: &Segment) -> Option<u64> {
    let sent = sent
        .filter(|sent| !sent.is_repeated && distance(sent.sequence, segment.acknowledgement) > 0)?;
    u64::try_from(segment.time_ns.saturating_sub(sent.time_ns)).ok()
}

impl Echoes {
    /// Records the timestamp of a segment in this direction. Only the first segment with each value counts.
    fn sent(&mut self, value: u32, time_ns: i64) {
        if self.newest.is_none_or(|newest| distance(newest, value) > 0) {
            self.newest = Some(value);
            if self.pending.len() < MAX_PENDING {
                self.pending.push((value, time_ns));
            }
        }
    }

    /// Processes an echo from the other direction. Older values will not be echoed again.
    fn echo(&mut self, value: u32, time_ns: i64) {
        while let Some(&(sent, sent_ns)) = self.pending.first()
            && distance(sent, value) >= 0
        {
            self.pending.remove(0);
            if sent == value
                && let Ok(time_ns) = u64::try_from(time_ns.saturating_sub(sent_ns))
            {
                self.least_ns = match self.count {
                    0 => time_ns,
                    _ => self.least_ns.min(time_ns),
                };
                self.count += 1;
                self.sum_ns = self.sum_ns.saturating_add(time_ns);
            }
        }
    }

    pub(super) fn least_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.least_ns)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "means are given in double precision"
    )]
    pub(super) fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}
