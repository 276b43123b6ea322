//! Counts epochs, and decides when the next one is due.

use std::time::{Duration, Instant};

/// How long a program that never syncs may run before its changes become an epoch.
const INTERVAL: Duration = Duration::from_millis(20);
/// The limit in bytes for [`INTERVAL`]. Above it an epoch waits for [`MAX_INTERVAL`], because
/// writing it to the disk takes time and the ring fills meanwhile.
const MAX_BYTES: usize = 4 << 20;
/// The longest interval, whatever the number of bytes.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// After this time an epoch no longer waits for files that change all the time.
const OVERDUE: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_millis(800);
/// How long to wait for running calls since the last epoch.
const CALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The epochs handed to the listener.
#[derive(Debug)]
pub(super) struct Epochs {
    /// The last epoch, or zero before the first.
    last: u64,
    /// The last epoch that contains what a program has synced.
    synced: u64,
    /// The last epoch without stale files, and the event number below which it has all events.
    whole: (u64, u64),
    /// When the last epoch was counted, and when it was handed on.
    begun: Instant,
    ended: Instant,
    /// Bytes handed on since.
    bytes: usize,
    /// When the capture last stopped waiting for running calls.
    calls_passed: Instant,
    /// Barriers seen so far. The next quiet moment becomes an epoch.
    barriers: Option<Barriers>,
}

/// Syncs of programs that no epoch contains yet.
#[derive(Clone, Copy, Debug)]
struct Barriers {
    /// The event numbers of the first and the last of them.
    first: u64,
    last: u64,
}

impl Epochs {
    /// Continues after `last`, the last epoch of the log.
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

    /// Whether an epoch later than `after` contains all events below a number.
    pub(super) fn has_whole(&self, after: u64, number: u64) -> bool {
        let (epoch, events) = self.whole;
        epoch > after && events >= number
    }

    /// Notes that the last epoch contains all events below this number.
    pub(super) fn note_whole(&mut self, number: u64) {
        self.whole = (self.last, number);
    }

    /// How many times a file must have changed while it was read before the next epoch stops
    /// waiting for it. `None` if the epoch waits for all files.
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

    /// Notes that the event with this number is a barrier.
    pub(super) fn note_barrier(&mut self, number: u64) {
        let barriers = self.barriers.get_or_insert(Barriers {
            first: number,
            last: number,
        });
        barriers.last = number;
    }

    /// Whether an epoch with all events below this number contains what was synced.
    pub(super) fn answers(&self, number: u64) -> bool {
        self.barriers
            .is_some_and(|barriers| barriers.first < number)
    }

    /// Notes that the last epoch contains all events below this number.
    pub(super) fn answer_barrier(&mut self, number: u64) {
        if !self.answers(number) {
            return;
        }
        self.synced = self.last;
        self.barriers = self.barriers.filter(|barriers| barriers.last >= number);
        if let Some(barriers) = &mut self.barriers {
            // One of the barriers from this number on is the first that still waits.
            barriers.first = number;
        }
    }

    /// Counts an epoch and returns its number.
    pub(super) fn begin_next(&mut self) -> u64 {
        self.begun = Instant::now();
        self.last += 1;
        self.last
    }

    /// Counts bytes that were handed on.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Notes that an epoch was handed on.
    pub(super) fn end(&mut self) {
        (self.ended, self.bytes) = (Instant::now(), 0);
    }

    /// Whether the bytes handed on have waited long enough for an epoch.
    pub(super) fn is_due(&self) -> bool {
        let least = match self.bytes <= MAX_BYTES {
            true => INTERVAL,
            false => MAX_INTERVAL,
        };
        self.ended.elapsed() >= least
    }

    /// How long they may still wait. `changed` says whether there are any changes.
    pub(super) fn until_due(&self, changed: bool) -> Duration {
        match changed && self.bytes <= MAX_BYTES {
            true => INTERVAL.saturating_sub(self.ended.elapsed()),
            false => INTERVAL,
        }
    }

    /// Whether running calls have been waited for long enough. If so, the next wait begins.
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
        // The synced data is in a file that the epoch has in an earlier state.
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
