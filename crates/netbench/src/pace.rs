//! When to send: [`Pace`] keeps fixed times, however late earlier messages were, and [`Bucket`] limits a rate.

use std::thread;
use std::time::{Duration, Instant};

/// A thread wakes this long before its time and then spins: timers are this late, and seldom later.
pub(crate) const SPIN: Duration = Duration::from_micros(70);
/// A longer sleep is divided, to check whether to stop.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(50);

/// The times of one flow's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    begin: Instant,
    interval: Duration,
    sent: u32,
    /// The time that `sent` counts from: it moves when `sent` wraps around.
    base: Duration,
}

impl Pace {
    /// `rate` is that of all flows, in messages a second. Flow number `flow` begins by its share of the interval later.
    pub(crate) fn new(rate: f64, flow: u16, flows: u16) -> Self {
        let flows = f64::from(flows.max(1));
        let interval = Duration::try_from_secs_f64(flows / rate).unwrap_or(Duration::MAX);
        Self {
            begin: Instant::now(),
            interval,
            sent: 0,
            base: interval.mul_f64(f64::from(flow) / flows),
        }
    }

    /// Waits until the next message is due, and returns that time; none if `stop` came first.
    pub(crate) fn wait(&mut self, stop: impl Fn() -> bool) -> Option<Instant> {
        let due = self.due()?;
        loop {
            let now = Instant::now();
            if now >= due {
                break;
            }
            if stop() {
                return None;
            }
            let left = due - now;
            match left.checked_sub(SPIN) {
                Some(early) => thread::sleep(early.min(MAX_SLEEP)),
                None => std::hint::spin_loop(),
            }
        }
        self.advance();
        Some(due)
    }

    /// Goes on to the next message.
    pub(crate) fn advance(&mut self) {
        self.sent = self.sent.checked_add(1).unwrap_or_else(|| {
            self.base += self.interval * u32::MAX;
            1
        });
    }

    /// The messages that were due from `begin` until before `end` and not waited for: the time of the first, and their
    /// number.
    pub(crate) fn unsent(&self, begin: Instant, end: Instant) -> Option<(Instant, u64)> {
        let due = self.due()?;
        let interval = self.interval.as_nanos().max(1);
        let before = begin.saturating_duration_since(due).as_nanos();
        // A product of nanoseconds: there may be more messages than a u32 counts.
        let skipped = before.div_ceil(interval).checked_mul(interval)?;
        let first = due.checked_add(Duration::from_nanos(u64::try_from(skipped).ok()?))?;
        let open = end.saturating_duration_since(first).as_nanos();
        let count = u64::try_from(open.div_ceil(interval)).ok()?;
        (count > 0).then_some((first, count))
    }

    /// The time between two messages of this flow.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// When the next message is due; none if that is beyond all clocks.
    pub(crate) fn due(&self) -> Option<Instant> {
        let after = self
            .interval
            .checked_mul(self.sent)?
            .checked_add(self.base)?;
        self.begin.checked_add(after)
    }
}

/// A token bucket of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    bytes_per_s: f64,
    capacity: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    /// It holds the bytes of a tenth of a second, and at least one message.
    pub(crate) fn new(bytes_per_s: f64, message: u32, now: Instant) -> Self {
        let capacity = (bytes_per_s / 10.0).max(message.into());
        Self {
            bytes_per_s,
            capacity,
            level: capacity,
            at: now,
        }
    }

    /// Takes the bytes of a message. False if it must not be sent now.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.level = (self.level + since * self.bytes_per_s).min(self.capacity);
        let bytes = bytes as f64;
        let may = bytes <= self.level;
        if may {
            self.level -= bytes;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_message_does_not_shift_schedule() {
        let mut pace = Pace::new(1000.0, 1, 2);
        let first = pace.wait(|| false).unwrap();
        assert_eq!(first - pace.begin, Duration::from_millis(1));
        thread::sleep(Duration::from_millis(7));
        let times = [0; 5].map(|_| pace.wait(|| false).unwrap() - pace.begin);
        assert_eq!(times, [3, 5, 7, 9, 11].map(Duration::from_millis));
        let mut never = Pace::new(1e-6, 0, 1);
        assert!(never.wait(|| false).is_some());
        assert!(never.wait(|| true).is_none());
    }

    #[test]
    fn pace_continues_when_counter_wraps() {
        let mut pace = Pace::new(1e9, 0, 1);
        pace.sent = u32::MAX;
        pace.begin -= pace.interval * u32::MAX;
        let last = pace.wait(|| false).unwrap();
        let next = pace.wait(|| false).unwrap();
        assert_eq!(next - last, pace.interval);
    }

    #[test]
    fn unsent_messages_are_counted() {
        let mut pace = Pace::new(1000.0, 0, 1);
        let at = |ms| pace.begin + Duration::from_millis(ms);
        let (begin, third, seventh, later) = (at(0), at(3), at(7), at(9));
        assert_eq!(pace.unsent(begin, third), Some((begin, 3)));
        assert_eq!(pace.unsent(third, seventh), Some((third, 4)));
        let between = Duration::from_micros(500);
        let half = pace.unsent(third - between, seventh + between);
        assert_eq!(half, Some((third, 5)));
        pace.sent = 8;
        assert_eq!(pace.unsent(begin, seventh), None);
        assert_eq!(pace.unsent(begin, later), Some((later - between * 2, 1)));
        assert_eq!(Pace::new(1e-6, 0, 1).unsent(later, later + between), None);
        // More of them before the window than a u32 counts.
        let fast = Pace::new(1e9, 0, 1);
        let opened = fast.begin + Duration::from_secs(5);
        let counted = fast.unsent(opened, opened + Duration::from_secs(1));
        assert_eq!(counted, Some((opened, 1_000_000_000)));
    }

    #[test]
    fn bucket_allows_rate_and_burst() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut bucket = Bucket::new(1000.0, 50, begin);
        assert!(bucket.take(60, at(0)) && bucket.take(40, at(0)) && !bucket.take(1, at(0)));
        assert!(!bucket.take(11, at(10)) && bucket.take(10, at(10)));
        // However long it was still.
        assert!(bucket.take(100, at(60_000)) && !bucket.take(1, at(60_000)));
        let mut slow = Bucket::new(1.0, 65_507, begin);
        assert!(slow.take(65_507, at(0)) && !slow.take(65_507, at(65_506_000)));
        assert!(slow.take(65_507, at(65_508_000)));
    }
}
