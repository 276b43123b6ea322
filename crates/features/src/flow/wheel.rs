//! A timer wheel: a ring of buckets by due time.
//!
//! A packet does not move its flow's timer. The timer fires at its original time and is then set again for the new
//! deadline. A packet therefore costs nothing here, and a flow is checked once per timeout that it outlives.

/// Buckets in the ring. A timer that is due later is put in the last bucket and set again when it fires.
const BUCKETS: i64 = 256;

#[derive(Debug)]
pub(super) struct Wheel {
    buckets: Vec<Vec<Timer>>,
    longest_ns: i64,
    width_ns: i64,
    /// The bucket that fires next, counted from time zero.
    next: i64,
    started: bool,
}

/// The position of a timer in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(i64);

/// An index into the table, and the number of the flow that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) place: u32,
    pub(super) tenant: u32,
    /// Whether the timer was set when the connection closed. The flow's first timer exists as well.
    pub(super) closing: bool,
}

impl Wheel {
    /// Creates a ring for timers of up to `longest_ns`.
    pub(super) fn new(longest_ns: i64) -> Self {
        Self {
            buckets: vec![Vec::new(); usize::try_from(BUCKETS).unwrap_or(0)],
            longest_ns,
            width_ns: (longest_ns / (BUCKETS - 2)).max(1),
            next: 0,
            started: false,
        }
    }

    /// Starts the ring at this time, unless it has already started.
    pub(super) fn begin(&mut self, time_ns: i64) {
        if !self.started {
            self.started = true;
            self.next = time_ns.div_euclid(self.width_ns);
        }
    }

    pub(super) fn set(&mut self, timer: Timer, due_ns: i64) {
        self.begin(due_ns.saturating_sub(self.longest_ns));
        let bucket = self.number(due_ns);
        self.bucket(bucket).push(timer);
    }

    /// The bucket for a due time; the nearest bucket if the time is outside the ring.
    fn number(&self, due_ns: i64) -> i64 {
        let bucket = due_ns.div_euclid(self.width_ns);
        bucket.clamp(self.next, self.next + BUCKETS - 1)
    }

    /// Takes every timer in the buckets that end before the horizon.
    pub(super) fn fire(&mut self, horizon_ns: i64, mut take: impl FnMut(&mut Self, Timer)) {
        let until = horizon_ns.div_euclid(self.width_ns);
        if until < self.next - BUCKETS {
            self.rewind(until, take);
            return;
        }
        // After a long pause each bucket needs to be emptied only once, not once per round.
        let rounds = until.saturating_sub(self.next).min(BUCKETS);
        for _ in 0..rounds {
            let timers = std::mem::take(self.bucket(self.next));
            self.next += 1;
            for timer in timers {
                take(self, timer);
            }
        }
        if rounds == BUCKETS {
            self.next = self.next.max(until);
        }
    }

    /// The clock has gone far back, so all timers are in the wrong buckets. Each of them is checked once.
    fn rewind(&mut self, until: i64, mut take: impl FnMut(&mut Self, Timer)) {
        let waiting: Vec<Timer> = self.buckets.iter_mut().flat_map(std::mem::take).collect();
        self.next = until;
        for timer in waiting {
            take(self, timer);
        }
    }

    /// Takes one of the timers that are due first. The returned place shows later whether its deadline has moved.
    pub(super) fn take_first(&mut self) -> Option<(Timer, Place)> {
        for ahead in 0..BUCKETS {
            let bucket = self.next + ahead;
            let timers = self.bucket(bucket);
            if let Some(timer) = timers.pop() {
                // Free the bucket's memory. Each bucket may have been as large as the table, and all of them
                // together would be far larger.
                if timers.is_empty() {
                    *timers = Vec::new();
                }
                return Some((timer, Place(bucket)));
            }
        }
        None
    }

    /// Whether a due time belongs in a later bucket than the one its timer was found in.
    pub(super) fn is_behind(&self, place: Place, due_ns: i64) -> bool {
        self.number(due_ns) > place.0
    }

    fn bucket(&mut self, number: i64) -> &mut Vec<Timer> {
        let index = usize::try_from(number.rem_euclid(BUCKETS)).unwrap_or(0);
        &mut self.buckets[index]
    }
}
