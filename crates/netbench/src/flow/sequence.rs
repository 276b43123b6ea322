//! Sequence numbers of datagrams: what a receiver can tell of its direction of a path. Loss follows from the number that
//! the sender has sent; duplicates, reordering (RFC 4737) and jitter (RFC 3550) from what arrives.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The bytes of a sequence number, and of the time that follows it. A shorter datagram has the low bytes of its number.
const NUMBER: usize = 8;
const TIME: usize = 8;
/// The size of the shortest datagram whose number says which one it is, in bytes. The numbers of shorter ones repeat after
/// fewer datagrams than a path may lose in a row, so these are only counted.
pub(crate) const MIN_NUMBERED: usize = 4;
/// Sequence numbers of which it is known whether they have arrived. An older one counts as a duplicate.
const WINDOW: u64 = 1 << 16;
const WORD: u64 = u64::BITS as u64;

/// What a receiver saw of the datagrams of one direction. Counts of several flows add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Datagrams, without further copies of the same.
    pub unique: u64,
    pub duplicates: u64,
    /// Those that arrived after one with a higher number (RFC 4737, section 4).
    pub reordered: u64,
    /// Runs of consecutive datagrams that did not arrive, before the last that did, and the longest of them.
    pub loss_bursts: u64,
    pub longest_loss_burst: u64,
    /// The interarrival jitter (RFC 3550, section 6.4.1), the mean of the flows, in nanoseconds. None where datagrams
    /// have no room for their time.
    pub jitter_ns: Option<f64>,
    /// The flows in that mean.
    pub jitter_flows: u16,
    /// The datagrams were too short for a number of their own. Each that arrived counts in `unique`, and nothing is known
    /// of duplicates, reordering and bursts.
    pub unnumbered: bool,
}

impl Arrivals {
    /// Adds those of another flow.
    pub(crate) fn add(&mut self, other: &Self) {
        self.unique += other.unique;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.loss_bursts += other.loss_bursts;
        self.unnumbered |= other.unnumbered;
        self.longest_loss_burst = self.longest_loss_burst.max(other.longest_loss_burst);
        let weight = |it: &Self| it.jitter_ns.unwrap_or(0.0) * f64::from(it.jitter_flows);
        let flows = self.jitter_flows + other.jitter_flows;
        let sum = weight(self) + weight(other);
        self.jitter_ns = (flows > 0).then(|| sum / f64::from(flows));
        self.jitter_flows = flows;
    }
}

/// Writes the number of a datagram, and the time since `epoch` where there is room for it.
pub(crate) fn write_header(datagram: &mut [u8], number: u64, epoch: Instant) {
    if let Some((to, _)) = datagram
        .split_at_mut_checked(NUMBER)
        .and_then(|(_, rest)| rest.split_at_mut_checked(TIME))
    {
        to.copy_from_slice(&nanoseconds(epoch).to_be_bytes());
    }
    write_number(datagram, number);
}

/// Writes the number of a datagram: all of it, or the low bytes that fit.
pub(crate) fn write_number(datagram: &mut [u8], number: u64) {
    let bytes = number.to_be_bytes();
    let len = datagram.len().min(NUMBER);
    if let (Some((to, _)), Some(from)) = (
        datagram.split_at_mut_checked(len),
        bytes.get(NUMBER - len..),
    ) {
        to.copy_from_slice(from);
    }
}

/// The number of a datagram, which may have the low bytes of it only. Of a short one it is the number nearest to `next`
/// that has these low bytes.
pub(crate) fn read_number(datagram: &[u8], next: u64) -> u64 {
    let len = datagram.len().min(NUMBER);
    let mut bytes = [0; NUMBER];
    if let (Some(to), Some(from)) = (bytes.get_mut(NUMBER - len..), datagram.get(..len)) {
        to.copy_from_slice(from);
    }
    let low = u64::from_be_bytes(bytes);
    if len == NUMBER {
        return low;
    }
    let span = 1_u64 << (8 * len);
    let same = (next & !(span - 1)) | low;
    let candidates = [same.checked_sub(span), Some(same), same.checked_add(span)];
    let nearest = candidates.into_iter().flatten();
    nearest
        .min_by_key(|number| number.abs_diff(next))
        .unwrap_or(same)
}

/// When a datagram was sent, in nanoseconds since the sender's epoch, where it has room for that.
fn read_time(datagram: &[u8]) -> Option<u64> {
    let bytes = datagram.get(NUMBER..NUMBER + TIME)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// The number of the latest of those up to `newest` that has the same low `bytes` as this datagram. Without one it is a
/// number above all.
pub(crate) fn latest_number(datagram: &[u8], bytes: usize, newest: u64) -> u64 {
    let span = 1_u64 << (8 * bytes.min(NUMBER - 1));
    let age = newest.wrapping_sub(read_number(datagram, 0)) & (span - 1);
    newest.wrapping_sub(age)
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Follows the sequence numbers that arrive in one flow.
#[derive(Debug)]
pub(crate) struct SequenceTracker {
    /// The number above all that have arrived.
    next: u64,
    /// One bit for each of the last [`WINDOW`] numbers below `next`: whether it has arrived.
    seen: Vec<u64>,
    /// Numbers that did not arrive, just before those of which it is still open.
    run: u64,
    arrivals: Arrivals,
    jitter_ns: f64,
    /// The difference between the receiver's clock and the sender's time, of the last datagram.
    transit_ns: Option<i64>,
    epoch: Instant,
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self {
            next: 0,
            seen: Vec::new(),
            run: 0,
            arrivals: Arrivals::default(),
            jitter_ns: 0.0,
            transit_ns: None,
            epoch: Instant::now(),
        }
    }
}

impl SequenceTracker {
    /// Records a datagram with its number and time. Returns the number, and false if it has arrived before. One that is
    /// too short for a number of its own counts as new, and has the low bytes of its number.
    pub(crate) fn record(&mut self, datagram: &[u8]) -> (u64, bool) {
        if datagram.len() < MIN_NUMBERED {
            self.arrivals.unique += 1;
            self.arrivals.unnumbered = true;
            return (read_number(datagram, 0), true);
        }
        let number = read_number(datagram, self.next);
        self.record_jitter(datagram);
        (number, self.record_number(number))
    }

    /// Records a number that has arrived. False if it has arrived before, or is too old to tell.
    fn record_number(&mut self, number: u64) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; usize::try_from(WINDOW / WORD).unwrap_or(0)];
        }
        let new = match number >= self.next {
            true => {
                self.advance(number);
                true
            }
            false => self.next - number <= WINDOW && !self.has_seen(number),
        };
        if !new {
            self.arrivals.duplicates += 1;
            return false;
        }
        self.arrivals.unique += 1;
        self.arrivals.reordered += u64::from(self.next - number > 1);
        let (word, bit) = place(number);
        if let Some(word) = self.seen.get_mut(word) {
            *word |= bit;
        }
        true
    }

    /// Moves the window so that `number` is its last. Numbers that leave it without having arrived are lost.
    fn advance(&mut self, number: u64) {
        let gap = (number - self.next).saturating_add(1);
        for step in 0..gap.min(WINDOW) {
            let enters = self.next + step;
            if let Some(leaves) = enters.checked_sub(WINDOW) {
                let seen = self.has_seen(leaves);
                close_run(&mut self.run, &mut self.arrivals, seen);
            }
            let (word, bit) = place(enters);
            if let Some(word) = self.seen.get_mut(word) {
                *word &= !bit;
            }
        }
        // A jump over more than the window: what lies between has not arrived.
        self.run = self.run.saturating_add(gap.saturating_sub(WINDOW));
        self.next = number.saturating_add(1);
    }

    fn has_seen(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen.get(word).is_some_and(|word| word & bit != 0)
    }

    fn record_jitter(&mut self, datagram: &[u8]) {
        let Some(sent) = read_time(datagram) else {
            return;
        };
        let transit = nanoseconds(self.epoch)
            .cast_signed()
            .wrapping_sub(sent.cast_signed());
        if let Some(last) = self.transit_ns {
            let change = transit.wrapping_sub(last).unsigned_abs() as f64;
            self.jitter_ns += (change - self.jitter_ns) / 16.0;
            self.arrivals.jitter_ns = Some(self.jitter_ns);
            self.arrivals.jitter_flows = 1;
        }
        self.transit_ns = Some(transit);
    }

    /// What has arrived so far.
    pub(crate) fn arrivals(&self) -> Arrivals {
        let (mut run, mut arrivals) = (self.run, self.arrivals);
        for number in self.next.saturating_sub(WINDOW)..self.next {
            close_run(&mut run, &mut arrivals, self.has_seen(number));
        }
        arrivals
    }
}

/// Counts a run of lost datagrams when the next one has arrived.
fn close_run(run: &mut u64, arrivals: &mut Arrivals, seen: bool) {
    if !seen {
        *run += 1;
        return;
    }
    if *run > 0 {
        arrivals.loss_bursts += 1;
        arrivals.longest_loss_burst = arrivals.longest_loss_burst.max(*run);
        *run = 0;
    }
}

/// The word and the bit of a number in the window.
fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    (usize::try_from(at / WORD).unwrap_or(0), 1 << (at % WORD))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    fn arrived(numbers: impl IntoIterator<Item = u64>) -> Arrivals {
        let mut tracker = SequenceTracker::default();
        for number in numbers {
            tracker.record_number(number);
        }
        tracker.arrivals()
    }

    #[test]
    fn loss_duplicates_and_reordering_are_told_apart() {
        let whole = arrived(0..1000);
        assert_eq!(
            (whole.unique, whole.duplicates, whole.reordered),
            (1000, 0, 0)
        );
        assert_eq!(whole.loss_bursts, 0);
        // Half is dropped and the rest doubled: the same number of datagrams, and not the same path.
        let halved = arrived(
            (0..1000)
                .filter(|number| number % 2 == 1)
                .flat_map(|it| [it, it]),
        );
        assert_eq!((halved.unique, halved.duplicates), (500, 500));
        assert_eq!((halved.loss_bursts, halved.longest_loss_burst), (500, 1));
        // Every tenth is overtaken by the next.
        let swapped = (0..100).flat_map(|ten| {
            let first = ten * 10;
            (first..first + 8).chain([first + 9, first + 8])
        });
        let swapped = arrived(swapped);
        assert_eq!((swapped.unique, swapped.reordered), (1000, 100));
        assert_eq!(swapped.loss_bursts, 0);
        let bursts = arrived([0, 1, 5, 6, 8]);
        assert_eq!((bursts.loss_bursts, bursts.longest_loss_burst), (2, 3));
    }

    #[test]
    fn window_bounds_memory_and_time() {
        let mut tracker = SequenceTracker::default();
        for number in 0..WINDOW * 3 {
            if number % 1000 != 7 {
                assert!(tracker.record_number(number));
            }
        }
        let lost = (0..WINDOW * 3).filter(|number| number % 1000 == 7).count() as u64;
        assert_eq!(tracker.arrivals().unique, WINDOW * 3 - lost);
        assert_eq!(tracker.arrivals().loss_bursts, lost);
        assert!(!tracker.record_number(7), "too old to tell");
        let late = (0..WINDOW * 3).rev().find(|number| number % 1000 == 7);
        assert!(tracker.record_number(late.unwrap()));
        assert_eq!(tracker.arrivals().loss_bursts, lost - 1);
        // A jump by nearly all numbers ends at once.
        assert!(tracker.record_number(u64::MAX - 1));
        assert!(!tracker.record_number(u64::MAX - 1));
        assert!(tracker.arrivals().longest_loss_burst > u64::MAX / 2);
    }

    #[test]
    fn short_datagrams_have_low_bytes_of_number() {
        for len in 1..=20 {
            let mut datagram = vec![9; len];
            for number in [0, 1, 254, 255, 256, 70_000, 1 << 33] {
                write_header(&mut datagram, number, Instant::now());
                for next in [number, number + 1, number + 100, number.saturating_sub(100)] {
                    assert_eq!(read_number(&datagram, next), number, "{len} {next}");
                }
            }
            assert_eq!(read_time(&datagram).is_some(), len >= NUMBER + TIME);
        }
    }

    #[test]
    fn short_datagrams_are_counted_whatever_is_lost() {
        for len in 1..=MIN_NUMBERED {
            let mut tracker = SequenceTracker::default();
            let mut datagram = vec![0; len];
            // More are lost in a row than the low byte counts, and one is doubled.
            for number in (0..10).chain(300..400).chain([399]) {
                write_number(&mut datagram, number);
                tracker.record(&datagram);
            }
            let arrivals = tracker.arrivals();
            let numbered = len == MIN_NUMBERED;
            let known = (arrivals.unique, arrivals.duplicates, arrivals.loss_bursts);
            assert_eq!(known, if numbered { (110, 1, 1) } else { (111, 0, 0) });
            assert_eq!((arrivals.unnumbered, arrivals.reordered), (!numbered, 0));
        }
    }

    #[test]
    fn low_bytes_are_those_of_latest_number() {
        let latest = |low: &[u8], newest| latest_number(low, low.len(), newest);
        assert_eq!(
            [latest(&[7], 7), latest(&[7], 263), latest(&[7], 262)],
            [7, 263, 7]
        );
        assert_eq!(latest(&[1, 0], 70_000), 65_792);
        // As of an answer that is longer than its request.
        assert_eq!(latest_number(&[0, 0, 0, 0, 0, 0, 0, 7], 1, 300), 263);
        assert!(latest(&[9], 7) > 1 << 60, "none has been sent");
    }

    #[test]
    fn jitter_follows_change_of_transit_time() {
        let mut tracker = SequenceTracker::default();
        let epoch = Instant::now();
        let mut datagram = [0; 16];
        for number in 0..200 {
            // One of two says that it was sent 10 ms later: the transit time changes by that each time.
            let shift = Duration::from_millis(number % 2 * 10);
            write_header(&mut datagram, number, epoch.checked_sub(shift).unwrap());
            tracker.record(&datagram);
        }
        let jitter = tracker.arrivals().jitter_ns.unwrap();
        assert!(
            jitter > 1e6 && tracker.arrivals().jitter_flows == 1,
            "{jitter}"
        );
        let mut both = tracker.arrivals();
        both.add(&Arrivals::default());
        assert_eq!(both.jitter_ns, Some(jitter));
        assert_eq!(arrived(0..3).jitter_ns, None);
    }
}
