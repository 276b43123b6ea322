//! When packets from memory come: as fast as they are decided about, or at a rate, in batches that may wait.

use std::time::Duration;

use clap::Args;
use control::units::Pps;

use super::time;

#[derive(Debug, Args)]
pub(super) struct Pace {
    /// Packets from memory come at this rate, as in 100kpps [default: as fast as they are decided about]
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<Pps>,
    /// Decide about less than a batch once its first packet has waited so long, as in 50us [default: never]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) batch_wait: Option<Duration>,
}

/// Packets that come to one thread, at times that are fixed beforehand. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    interval: f64,
    /// When the first one comes.
    first: f64,
    wait: Option<f64>,
    taken: u64,
}

/// A batch, and when its first and its last packet came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Due {
    pub(super) packets: usize,
    pub(super) first: f64,
    pub(super) last: f64,
}

impl Pace {
    /// For one of so many threads, to which packets come in turns.
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
    /// The next batch, of at most so many packets, if it waits no longer at this time.
    pub(super) fn take(&mut self, now: f64, most: usize) -> Option<Due> {
        let came = ((now - self.first) / self.interval).floor() + 1.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a run ends before"
        )]
        let came = came.max(0.0) as u64;
        let waiting = usize::try_from(came.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let first = self.came(self.taken);
        let waited = self.wait.is_some_and(|wait| now - first >= wait);
        if waiting == 0 || waiting < most && !waited {
            return None;
        }
        let packets = waiting.min(most);
        self.taken += packets as u64;
        Some(Due {
            packets,
            first,
            last: self.came(self.taken - 1),
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a run ends before")]
    fn came(&self, packet: u64) -> f64 {
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

    fn due(packets: usize, first: f64, last: f64) -> Option<Due> {
        Some(Due {
            packets,
            first,
            last,
        })
    }

    #[test]
    fn a_batch_goes_when_it_is_full_or_its_first_packet_has_waited() {
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
    fn without_a_time_to_wait_only_full_batches_go() {
        let mut schedule = schedule(None);
        assert_eq!(schedule.take(62_999.0, 64), None);
        assert_eq!(schedule.take(63_000.0, 64), due(64, 0.0, 63_000.0));
    }

    #[test]
    fn packets_come_to_threads_in_turns() {
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
