//! Limits the rate at which a tree is read, so that other users of its disk come first.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// A rate in bytes per second, without any burst.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<NonZeroU64>,
    /// When everything read so far would have arrived at this rate.
    due: Option<Instant>,
}

impl Pace {
    pub(super) fn new(rate: Option<NonZeroU64>) -> Self {
        Self { rate, due: None }
    }

    /// Until when to wait after this many bytes were read by `now`.
    pub(super) fn spend(&mut self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.rate?;
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
        let took = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        // Idle time does not count as credit.
        let from = self.due.map_or(now, |due| due.max(now));
        self.due = from.checked_add(took);
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn bytes_take_their_time_and_a_pause_earns_none() {
        let mut pace = Pace::new(NonZeroU64::new(1000));
        let begun = Instant::now();
        assert_eq!(pace.spend(10, begun), Some(begun + 10 * MS));
        // Without a pause in between: after the earlier bytes.
        assert_eq!(pace.spend(5, begun), Some(begun + 15 * MS));
        let later = begun + 500 * MS;
        assert_eq!(pace.spend(1, later), Some(later + MS));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        assert_eq!(Pace::new(None).spend(u64::MAX, Instant::now()), None);
    }
}
