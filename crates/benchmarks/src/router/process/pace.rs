//! When packets arrive: as fast as they are processed, or at a rate, in batches that may wait.

use std::time::Duration;

use units::Pps;

/// When packets arrive, and how long a batch waits for more of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Of packets from memory; by default they arrive as fast as they are processed.
    pub rate: Option<Pps>,
    /// A batch is processed before it is full once its first packet has waited so long.
    pub batch_wait: Option<Duration>,
}

/// The arrivals of one thread's packets, at times that are fixed in advance. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    interval: f64,
    /// When the first one arrives.
    first: f64,
    wait: Option<f64>,
    taken: u64,
}

/// A batch, and when its first and its last packet arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DueBatch {
    pub(super) packets: usize,
    pub(super) first: f64,
    pub(super) last: f64,
}

impl Pace {
    /// The schedule of one of `threads` threads, which packets reach in turn.
    pub(super) fn schedule(&self, thread: usize, threads: usize) -> Option<Schedule> {
        let rate = self.rate?;
        let interval = 1e9 / f64::from(rate.0);
        #[expect(clippy::cast_precision_loss, reason = "a few threads")]
        let (thread, threads) = (thread as f64, threads as f64);
        Some(Schedule {
            interval: interval * threads,
            first: interval * thread,
            wait: self.batch_wait.map(|wait| wait.as_secs_f64() * 1e9),
            taken: 0,
        })
    }
}

impl Schedule {
    /// The next batch, of at most `most` packets, if it does not wait any longer at `now`.
    pub(super) fn take(&mut self, now: f64, most: usize) -> Option<DueBatch> {
        let arrived = ((now - self.first) / self.interval).floor() + 1.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a run ends before"
        )]
        let arrived = arrived.max(0.0) as u64;
        let waiting = usize::try_from(arrived.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let first = self.arrival(self.taken);
        let waited = self.wait.is_some_and(|wait| now - first >= wait);
        if waiting == 0 || waiting < most && !waited {
            return None;
        }
        let packets = waiting.min(most);
        self.taken += packets as u64;
        Some(DueBatch {
            packets,
            first,
            last: self.arrival(self.taken - 1),
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a run ends before")]
    fn arrival(&self, packet: u64) -> f64 {
        self.first + self.interval * packet as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet each microsecond.
    fn schedule(batch_wait: Option<u64>) -> Schedule {
        let pace = Pace {
            rate: Some(Pps(1_000_000)),
            batch_wait: batch_wait.map(Duration::from_micros),
        };
        pace.schedule(0, 1).unwrap()
    }

    fn due(packets: usize, first: f64, last: f64) -> Option<DueBatch> {
        Some(DueBatch {
            packets,
            first,
            last,
        })
    }

    #[test]
    fn batch_is_due_when_full_or_waited() {
        let mut schedule = schedule(Some(10));
        assert_eq!(schedule.take(0.0, 4), None, "one packet, which waits");
        assert_eq!(schedule.take(3_000.0, 4), due(4, 0.0, 3_000.0), "full");
        assert_eq!(schedule.take(3_500.0, 4), None, "none");
        assert_eq!(schedule.take(13_999.0, 64), None, "ten that wait");
        assert_eq!(schedule.take(14_000.0, 64), due(11, 4_000.0, 14_000.0));
        assert_eq!(
            schedule.take(15_000.0, 1),
            due(1, 15_000.0, 15_000.0),
            "of one"
        );
        assert_eq!(schedule.take(9e6, 64), due(64, 16_000.0, 79_000.0), "late");
    }

    #[test]
    fn only_full_batches_are_due_without_wait() {
        let mut schedule = schedule(None);
        assert_eq!(schedule.take(62_999.0, 64), None);
        assert_eq!(schedule.take(63_000.0, 64), due(64, 0.0, 63_000.0));
    }

    #[test]
    fn packets_reach_threads_in_turn() {
        let pace = Pace {
            rate: Some(Pps(1_000_000)),
            batch_wait: None,
        };
        let mut second = pace.schedule(1, 2).unwrap();
        assert_eq!(second.take(999.0, 1), None);
        assert_eq!(second.take(3_000.0, 2), due(2, 1_000.0, 3_000.0));
        let as_fast_as_possible = Pace {
            rate: None,
            batch_wait: None,
        };
        assert!(as_fast_as_possible.schedule(0, 1).is_none());
    }
}
