//! When each burst is due, and waiting for that moment.

/// Wake this long before a burst is due and spin the rest: a sleep ends tens of microseconds late.
const WAKE_EARLY_NS: u64 = 70_000;
/// A sleep shorter than this is spun through.
const SHORTEST_SLEEP_NS: u64 = 20_000;
/// Bursts at least this far apart leave time to sleep between them.
pub(crate) const SLEEPS_FROM_PS: u64 = (WAKE_EARLY_NS + SHORTEST_SLEEP_NS + 10_000) * 1000;

/// The time there is, so that schedules can be tested without it.
pub(crate) trait Clock {
    fn now(&self) -> u64;
    fn sleep_until(&self, ns: u64);
}

/// CLOCK_MONOTONIC.
pub(crate) struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> u64 {
        sys::clock::monotonic_ns()
    }

    fn sleep_until(&self, ns: u64) {
        sys::sched::sleep_until(ns);
    }
}

/// Picoseconds between packets: fine enough that a million of them are off by a microsecond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are checked to be 0.001 to 1e9, so this is 1e3 to 1e15"
)]
pub(crate) fn interval_ps(rate: f64) -> u64 {
    (1e12 / rate).round() as u64
}

/// Packet k is due at `start + k * interval`, whatever happened to those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) start_ns: u64,
    pub(crate) interval_ps: u64,
}

impl Schedule {
    pub(crate) fn due(&self, packet: u64) -> u64 {
        let after_ps = u128::from(packet) * u128::from(self.interval_ps);
        self.start_ns + u64::try_from(after_ps / 1000).unwrap_or(u64::MAX - self.start_ns)
    }

    /// Packets due before `duration_ns` has passed.
    pub(crate) fn packets_in(&self, duration_ns: u64) -> u64 {
        let packets = (u128::from(duration_ns) * 1000).div_ceil(u128::from(self.interval_ps));
        u64::try_from(packets).unwrap_or(u64::MAX)
    }
}

/// Returns the first time read that is not before `due`; at once when that has passed.
pub(crate) fn wait(clock: &impl Clock, due: u64) -> u64 {
    let mut now = clock.now();
    if now + WAKE_EARLY_NS + SHORTEST_SLEEP_NS <= due {
        clock.sleep_until(due - WAKE_EARLY_NS);
        now = clock.now();
    }
    while now < due {
        std::hint::spin_loop();
        now = clock.now();
    }
    now
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Each reading takes 10 ns; a sleep ends 50 us late.
    struct Fake {
        now: Cell<u64>,
        sleeps: RefCell<Vec<u64>>,
    }

    impl Fake {
        fn at(now: u64) -> Self {
            Self {
                now: Cell::new(now),
                sleeps: RefCell::default(),
            }
        }
    }

    impl Clock for Fake {
        fn now(&self) -> u64 {
            self.now.set(self.now.get() + 10);
            self.now.get()
        }

        fn sleep_until(&self, ns: u64) {
            self.sleeps.borrow_mut().push(ns);
            self.now.set(self.now.get().max(ns + 50_000));
        }
    }

    #[test]
    fn far_away_it_sleeps_and_then_spins() {
        let clock = Fake::at(0);
        assert_eq!(wait(&clock, 1_000_000), 1_000_000);
        assert_eq!(*clock.sleeps.borrow(), [930_000]);
    }

    #[test]
    fn close_by_it_only_spins() {
        let clock = Fake::at(0);
        assert_eq!(wait(&clock, 89_000), 89_000);
        assert!(clock.sleeps.borrow().is_empty());
    }

    #[test]
    fn when_late_it_does_not_wait() {
        let clock = Fake::at(5_000);
        assert_eq!(wait(&clock, 1_000), 5_010);
    }

    #[test]
    fn the_schedule_does_not_drift() {
        let schedule = Schedule {
            start_ns: 7,
            interval_ps: interval_ps(300_000.0),
        };
        // A packet every 3333.333... ns: after a million, a third of a microsecond is lost.
        assert_eq!(schedule.due(0), 7);
        assert_eq!(schedule.due(3), 7 + 9_999);
        assert_eq!(schedule.due(1_000_000), 7 + 3_333_333_000);
        assert_eq!(interval_ps(100_000.0), 10_000_000);
    }

    #[test]
    fn a_duration_holds_the_packets_due_in_it() {
        let schedule = Schedule {
            start_ns: 0,
            interval_ps: interval_ps(1000.0),
        };
        assert_eq!(schedule.packets_in(0), 0);
        assert_eq!(schedule.packets_in(1), 1);
        assert_eq!(schedule.packets_in(1_000_000), 1);
        assert_eq!(schedule.packets_in(1_000_001), 2);
        assert_eq!(schedule.packets_in(1_000_000_000), 1000);
    }
}
