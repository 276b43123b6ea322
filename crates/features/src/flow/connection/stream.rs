//! The bytes of one direction of a TCP connection: which were seen and which are missing.

use crate::dissect::tcp_flag;

use super::segment::{Segment, distance};

/// The maximum number of missing ranges. A further one replaces the oldest.
const MAX_HOLES: usize = 8;
/// Bytes of the missing ranges.
pub(super) const MAX_BYTES: usize = MAX_HOLES * size_of::<Hole>();

/// The sequence space of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stream {
    /// The sequence number after the last byte seen, and the time of that byte.
    highest: Option<Highest>,
    /// Missing ranges before it, in the order in which they were found.
    holes: Vec<Hole>,
    /// Missing bytes before this sequence number are already counted, if the other side acknowledged them.
    counted: u32,
    pub(super) retransmissions: u64,
    pub(super) out_of_order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Highest {
    end: u32,
    time_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    start: u32,
    end: u32,
}

/// The state of the other direction when a segment arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reverse {
    /// The highest acknowledgement of this direction.
    pub(super) acknowledged: u32,
    /// The latest window is 0.
    pub(super) has_zero_window: bool,
    /// A missing range that is filled later than this after the last byte counts as a retransmission.
    pub(super) reordering_ns: u64,
}

impl Stream {
    /// Starts with the first segment, or with a SYN that changes the direction's sequence numbers.
    pub(super) fn start(&mut self, segment: &Segment) {
        self.highest = Some(Highest {
            end: segment.sequence,
            time_ns: segment.time_ns,
        });
        self.holes.clear();
        let synchronizes = u32::from(segment.has(tcp_flag::SYN));
        self.counted = segment.sequence.wrapping_add(synchronizes);
    }

    /// Adds the next segment of this direction.
    pub(super) fn segment(&mut self, segment: &Segment, reverse: Reverse) {
        let Some(highest) = self.highest.filter(|_| !segment.has(tcp_flag::RST)) else {
            return;
        };
        let (start, end, length) = (segment.sequence, segment.end(), segment.length());
        let ahead = distance(highest.end, start);
        let is_probe = length == 1 && segment.payload == 1;
        if is_probe && (ahead == -1 || ahead == 0 && reverse.has_zero_window) {
            return;
        }
        // A segment after a keep-alive probe may repeat the probe's byte.
        if length > 0 && (ahead < -1 || ahead == -1 && segment.payload <= 1) {
            self.repeated(segment, &highest, reverse);
        }
        // A segment without payload also shows the position of the next byte.
        if distance(highest.end, end) > 0 {
            if ahead > 0 {
                self.miss(highest.end, start);
            }
            self.highest = Some(Highest {
                end,
                time_ns: segment.time_ns,
            });
        }
    }

    /// Counts a segment that starts before the highest sequence number.
    fn repeated(&mut self, segment: &Segment, highest: &Highest, reverse: Reverse) {
        let (start, end) = (segment.sequence, segment.end());
        let missing = self.fill(start, end);
        let acknowledged = distance(reverse.acknowledged, end) <= 0;
        let waited = segment.time_ns.saturating_sub(highest.time_ns);
        let is_late = u64::try_from(waited).is_ok_and(|waited| waited >= reverse.reordering_ns);
        if missing < segment.length() || acknowledged || is_late {
            self.retransmissions += 1;
        } else {
            self.out_of_order += 1;
        }
    }

    fn miss(&mut self, start: u32, end: u32) {
        if self.holes.len() == MAX_HOLES {
            self.holes.remove(0);
        }
        self.holes.push(Hole { start, end });
    }

    /// Removes a range from the missing ranges. Returns the number of its bytes that were missing.
    fn fill(&mut self, start: u32, end: u32) -> u32 {
        let mut filled = 0;
        let holes = std::mem::take(&mut self.holes);
        for hole in &holes {
            let (from, to) = (later(start, hole.start), earlier(end, hole.end));
            if distance(from, to) <= 0 {
                self.holes.push(*hole);
                continue;
            }
            filled += to.wrapping_sub(from);
            for (start, end) in [(hole.start, from), (to, hole.end)] {
                if distance(start, end) > 0 {
                    self.miss(start, end);
                }
            }
        }
        filled
    }

    /// The number of missing ranges that an acknowledgement newly covers. Their bytes were received but not captured.
    /// `limit` is the sequence number of the FIN, which does not stand for a byte.
    pub(super) fn acknowledge(&mut self, acknowledgement: u32, limit: Option<u32>) -> usize {
        let up_to = limit.map_or(acknowledgement, |limit| earlier(acknowledgement, limit));
        let from = self.counted;
        if distance(from, up_to) <= 0 {
            return 0;
        }
        self.counted = up_to;
        let overlaps = |start, end| distance(later(from, start), earlier(up_to, end)) > 0;
        let holes = self
            .holes
            .iter()
            .filter(|hole| overlaps(hole.start, hole.end));
        let end = self.highest.map_or(from, |highest| highest.end);
        holes.count() + usize::from(overlaps(end, up_to))
    }
}

fn later(one: u32, other: u32) -> u32 {
    if distance(one, other) > 0 { other } else { one }
}

fn earlier(one: u32, other: u32) -> u32 {
    if distance(one, other) > 0 { one } else { other }
}
