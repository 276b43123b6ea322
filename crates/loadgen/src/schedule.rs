//! When each burst is due, and waiting for that moment.

/// The first packet is due this long after the start, so that it is not late for having been
/// prepared.
pub(crate) const LEAD_NS: u64 = 300_000;
/// Wake this long before a burst is due and spin the rest, at first: a sleep ends late, by some
/// microseconds or some tens of them.
const WAKE_EARLY_NS: u64 = 70_000;
/// Limits of that time, once it is known how late sleeps end here.
const WAKE_EARLY_RANGE_NS: [u64; 2] = [20_000, 200_000];
/// The oversleep of the worst recent sleep decays by this part with each sleep.
const DECAY_SLEEPS: u64 = 16;
/// A sleep shorter than this is spun through.
const MIN_SLEEP_NS: u64 = 20_000;
/// Sleep that a real-time thread owes for its time awake, in per cent: the kernel stops one that
/// takes more than 95 % of the time for the rest of the second.
const REST_PCT: u64 = 12;
/// The minimum length of a rest. It ends some 8 us late, and many short rests make packets less late than few
/// long ones.
const MIN_REST_NS: u64 = 10_000;
/// The part of a sleep that falling asleep and waking up takes. The kernel counts it as time awake.
const SWITCH_NS: u64 = 6_000;
/// Sleep beyond what was owed counts for this long at most.
const CREDIT_NS: i64 = 5_000_000;

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

/// Waits for due times; for a real-time thread it also sees to it that the thread rests enough.
#[derive(Debug)]
pub(crate) struct Pacer<C> {
    clock: C,
    rest: Option<SleepDebt>,
    /// How long before a burst is due a sleep is to end: what the latest of late overslept.
    early_ns: u64,
}

/// How long a thread should have slept by now and has not.
#[derive(Debug)]
struct SleepDebt {
    owed_ns: i64,
    last: u64,
}

impl<C: Clock> Pacer<C> {
    pub(crate) fn new(clock: C, real_time: bool) -> Self {
        let last = clock.now();
        let rest = real_time.then_some(SleepDebt { owed_ns: 0, last });
        Self {
            clock,
            rest,
            early_ns: WAKE_EARLY_NS,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the first time read that is not before `due`; at once when that has passed and no
    /// rest is owed.
    pub(crate) fn wait(&mut self, due: u64) -> u64 {
        let mut now = self.clock.now();
        let sleep_debt = self.sleep_debt(now);
        let early = due.saturating_sub(self.early_ns);
        if now + MIN_SLEEP_NS <= early {
            now = self.sleep(now, early);
        } else if sleep_debt >= MIN_REST_NS {
            // One that does not fit before the burst makes it late.
            let fits = now + MIN_REST_NS <= early;
            let until = if fits { early } else { due };
            now = self.sleep(now, until.max(now + MIN_REST_NS));
        }
        while now < due {
            std::hint::spin_loop();
            now = self.clock.now();
        }
        now
    }

    /// Sleeps what is owed, for a thread that has nothing to wait for; returns the time.
    pub(crate) fn rest(&mut self) -> u64 {
        let now = self.clock.now();
        match self.sleep_debt(now) {
            sleep_debt if sleep_debt >= MIN_REST_NS => self.sleep(now, now + sleep_debt),
            _ => now,
        }
    }

    fn sleep_debt(&mut self, now: u64) -> u64 {
        let Some(rest) = &mut self.rest else { return 0 };
        let due = (now - rest.last) * REST_PCT / 100;
        // Less than REST_PCT of it is lost to rounding only when called more than once in 14 ns.
        rest.owed_ns += i64::try_from(due).unwrap_or(0);
        rest.last = now;
        u64::try_from(rest.owed_ns).unwrap_or(0)
    }

    fn sleep(&mut self, from: u64, until: u64) -> u64 {
        self.clock.sleep_until(until);
        let now = self.clock.now();
        let [least, most] = WAKE_EARLY_RANGE_NS;
        let faded = self.early_ns - self.early_ns / DECAY_SLEEPS;
        self.early_ns = faded.max(now.saturating_sub(until)).clamp(least, most);
        if let Some(rest) = &mut self.rest {
            let slept = (now - from).saturating_sub(SWITCH_NS);
            let slept = i64::try_from(slept).unwrap_or(CREDIT_NS);
            rest.owed_ns = (rest.owed_ns - slept).max(-CREDIT_NS);
            rest.last = now;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Each reading takes 10 ns; a sleep ends 50 us late.
    struct FakeClock {
        now: Cell<u64>,
        sleeps: RefCell<Vec<u64>>,
        asleep: Cell<u64>,
    }

    impl FakeClock {
        fn at(now: u64) -> Self {
            Self {
                now: Cell::new(now),
                sleeps: RefCell::default(),
                asleep: Cell::default(),
            }
        }
    }

    impl Clock for &FakeClock {
        fn now(&self) -> u64 {
            self.now.set(self.now.get() + 10);
            self.now.get()
        }

        fn sleep_until(&self, ns: u64) {
            self.sleeps.borrow_mut().push(ns);
            let before = self.now.get();
            self.now.set(before.max(ns + 50_000));
            self.asleep.set(self.asleep.get() + self.now.get() - before);
        }
    }

    #[test]
    fn far_away_it_sleeps_and_then_spins() {
        let clock = FakeClock::at(0);
        let mut pacer = Pacer::new(&clock, false);
        assert_eq!(pacer.wait(1_000_000), 1_000_000);
        assert_eq!(*clock.sleeps.borrow(), [930_000]);
    }

    #[test]
    fn it_wakes_as_early_as_sleeps_end_late() {
        let clock = FakeClock::at(0);
        let mut pacer = Pacer::new(&clock, false);
        let late = (1..200).filter(|&burst| {
            let due = burst * 1_000_000;
            pacer.wait(due) > due + 10
        });
        assert_eq!(late.count(), 0);
        let last = clock.sleeps.borrow().last().copied();
        // Some 50 us before, and not 70.
        assert!((199_000_000 - 51_000..199_000_000 - 50_000).contains(&last.unwrap()));
    }

    #[test]
    fn a_rest_that_fits_before_the_burst_does_not_make_it_late() {
        let clock = FakeClock::at(0);
        let mut pacer = Pacer::new(&clock, true);
        let late = (1..1000).filter(|&burst| {
            let due = burst * 100_000;
            let entered = pacer.wait(due);
            clock.now.set(entered + 30_000);
            entered > due + 10
        });
        // The first few show how late sleeps end.
        assert!(late.count() < 10);
        let asleep = clock.asleep.get() as f64 / clock.now.get() as f64;
        assert!(asleep > 0.115, "{asleep}");
    }

    #[test]
    fn close_by_it_only_spins() {
        let clock = FakeClock::at(0);
        assert_eq!(Pacer::new(&clock, false).wait(89_000), 89_000);
        assert!(clock.sleeps.borrow().is_empty());
    }

    #[test]
    fn when_late_it_does_not_wait() {
        let clock = FakeClock::at(5_000);
        assert_eq!(Pacer::new(&clock, false).wait(1_000), 5_020);
    }

    #[test]
    fn real_time_thread_rests_twelve_percent() {
        let clock = FakeClock::at(0);
        let mut pacer = Pacer::new(&clock, true);
        for packet in 1..10_000 {
            pacer.wait(packet * 10_000);
        }
        let asleep = clock.asleep.get() as f64 / clock.now.get() as f64;
        assert!((0.115..0.122).contains(&asleep), "{asleep}");
        let other = FakeClock::at(0);
        let mut pacer = Pacer::new(&other, false);
        for packet in 1..1000 {
            pacer.wait(packet * 10_000);
        }
        assert!(other.sleeps.borrow().is_empty());
    }

    #[test]
    fn thread_without_schedule_pays_sleep_debt() {
        let clock = FakeClock::at(0);
        let mut pacer = Pacer::new(&clock, true);
        assert!(pacer.rest() < 100);
        clock.now.set(1_000_000);
        let woken = pacer.rest();
        assert!((1_169_900..1_170_100).contains(&woken), "{woken}");
        assert!(pacer.rest() < woken + 100);
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
