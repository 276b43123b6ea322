//! Counts epochs, and decides when the next one is due.

use std::time::{Duration, Instant};

/// A program that goes on and on and syncs nothing: what it has done for so long is an epoch.
const INTERVAL: Duration = Duration::from_millis(20);
/// Unless these are more bytes: it takes time to have them on the disk, and the ring fills meanwhile.
const MAX_BYTES: usize = 4 << 20;
/// However much that is.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// After so much time an epoch does not wait for files that change all the time.
const OVERDUE: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_millis(800);
/// Calls that are under way are waited for, unless there was no epoch for so long.
const CALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The epochs that were handed to the listener.
#[derive(Debug)]
pub(super) struct Epochs {
    /// The last one; zero before the first.
    last: u64,
    /// The last one that has what a program has synced.
    synced: u64,
    /// The last one without stale files, and the number before which it has all events.
    whole: (u64, u64),
    /// When the last one was counted, and when it was handed on.
    begun: Instant,
    ended: Instant,
    /// Bytes that were handed on since.
    bytes: usize,
    /// When calls under way were not waited for any more.
    calls_passed: Instant,
    /// Barriers were seen: the next quiet moment is an epoch.
    barriers: Option<Barriers>,
}

/// What programs have synced, and no epoch has yet.
#[derive(Clone, Copy, Debug)]
struct Barriers {
    /// The numbers of the events of the first and of the last one.
    first: u64,
    last: u64,
}

impl Epochs {
    /// `last` is the last epoch of the log.
    pub(super) fn new(last: u64) -> Self {
        Self {
            last,
            synced: 0,
            whole: (0, 0),
            begun: Instant::now(),
            ended: Instant::now(),
            bytes: 0,
            calls_passed: Instant::now(),
            barriers: None,
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// Whether a later one than this has all events before a number.
    pub(super) fn has_whole(&self, after: u64, number: u64) -> bool {
        let (epoch, events) = self.whole;
        epoch > after && events >= number
    }

    /// The last one has all events before this number.
    pub(super) fn note_whole(&mut self, number: u64) {
        self.whole = (self.last, number);
    }

    /// How many times a file has to have changed while it was read, for the next one not to wait for it; none where it
    /// waits for all.
    pub(super) fn max_rereads(&self) -> Option<u32> {
        match self.begun.elapsed() {
            waited if waited >= LATE => Some(1),
            waited if waited >= OVERDUE => Some(3),
            _ => None,
        }
    }

    pub(super) fn has_barrier(&self) -> bool {
        self.barriers.is_some()
    }

    /// The event with this number is a barrier.
    pub(super) fn note_barrier(&mut self, number: u64) {
        let barriers = self.barriers.get_or_insert(Barriers {
            first: number,
            last: number,
        });
        barriers.last = number;
    }

    /// Whether an epoch that has all events before this number has what was synced.
    pub(super) fn answers(&self, number: u64) -> bool {
        self.barriers
            .is_some_and(|barriers| barriers.first < number)
    }

    /// The last epoch has all events before this number.
    pub(super) fn answer_barrier(&mut self, number: u64) {
        if !self.answers(number) {
            return;
        }
        self.synced = self.last;
        self.barriers = self.barriers.filter(|barriers| barriers.last >= number);
        if let Some(barriers) = &mut self.barriers {
            // One of those from here on is the first that waits.
            barriers.first = number;
        }
    }

    /// Counts an epoch, and returns its number.
    pub(super) fn begin_next(&mut self) -> u64 {
        self.begun = Instant::now();
        self.last += 1;
        self.last
    }

    /// Bytes were handed on.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// An epoch was handed on.
    pub(super) fn end(&mut self) {
        (self.ended, self.bytes) = (Instant::now(), 0);
    }

    /// Whether what was handed on has waited for long enough.
    pub(super) fn is_due(&self) -> bool {
        let least = match self.bytes <= MAX_BYTES {
            true => INTERVAL,
            false => MAX_INTERVAL,
        };
        self.ended.elapsed() >= least
    }

    /// For how long it may wait yet. `changed` says whether there is anything.
    pub(super) fn until_due(&self, changed: bool) -> Duration {
        match changed && self.bytes <= MAX_BYTES {
            true => INTERVAL.saturating_sub(self.ended.elapsed()),
            false => INTERVAL,
        }
    }

    /// Whether calls under way have been waited for long enough; if so, the next wait begins.
    pub(super) fn passes_calls(&mut self) -> bool {
        let passes = self.ended.max(self.calls_passed).elapsed() >= CALL_TIMEOUT;
        if passes {
            self.calls_passed = Instant::now();
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_answered_by_an_epoch_that_has_what_was_synced() {
        let mut epochs = Epochs::new(0);
        epochs.answer_barrier(u64::MAX);
        assert_eq!(epochs.synced(), 0);
        for number in [10, 20, 30] {
            epochs.note_barrier(number);
        }
        // What was synced is in a file that the epoch has as it was before.
        epochs.begin_next();
        assert!(!epochs.answers(10));
        epochs.answer_barrier(10);
        assert_eq!((epochs.synced(), epochs.has_barrier()), (0, true));
        epochs.begin_next();
        assert!(epochs.answers(25));
        epochs.answer_barrier(25);
        assert_eq!((epochs.synced(), epochs.has_barrier()), (2, true));
        epochs.begin_next();
        assert!(!epochs.answers(25));
        epochs.answer_barrier(31);
        assert_eq!((epochs.synced(), epochs.has_barrier()), (3, false));
    }
}
