//! The bytes of one direction of a TCP connection: those that were seen, and those that are missing.

use crate::dissect::tcp_flag;

use super::segment::{Segment, distance};

/// Missing ranges that are kept. If there is another one, the oldest is given up.
const MAX_HOLES: usize = 8;
/// Bytes that they take.
pub(super) const MAX_BYTES: usize = MAX_HOLES * size_of::<Hole>();

/// What one direction has sent, by sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stream {
    /// Behind the last byte that was seen, and when that byte came.
    highest: Option<Highest>,
    /// Ranges before it that were not seen, in the order in which they were found.
    holes: Vec<Hole>,
    /// Up to here missing bytes that the other side has acknowledged were counted.
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

/// What is known of the other direction when a segment comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reverse {
    /// The highest acknowledgement of this direction.
    pub(super) acknowledged: u32,
    /// The latest window is 0.
    pub(super) has_zero_window: bool,
    /// A missing range that is filled later than this after the last byte is a retransmission.
    pub(super) reordering_ns: u64,
}

impl Stream {
    /// Starts with this segment: the first, or a SYN that gives the direction other sequence numbers.
    pub(super) fn start(&mut self, segment: &Segment) {
        self.highest = Some(Highest {
            end: segment.sequence,
            time_ns: segment.time_ns,
        });
        self.holes.clear();
        let synchronizes = u32::from(segment.has(tcp_flag::SYN));
        self.counted = segment.sequence.wrapping_add(synchronizes);
    }

    /// Takes the next segment of this direction.
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
        // What follows a probe may repeat its byte.
        if length > 0 && (ahead < -1 || ahead == -1 && segment.payload <= 1) {
            self.repeated(segment, &highest, reverse);
        }
        // A segment without payload tells where the next byte is, too.
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

    /// Takes a range out of what is missing: how many bytes of it were.
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

    /// How many missing ranges an acknowledgement newly covers: bytes that were received, and not captured. `limit`
    /// is the FIN's sequence number, which stands for no byte.
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
