//! When to look at which flow: a ring of buckets by due time.
//!
//! A flow that gets packets is not moved: its timer fires where it was set, and is then set anew. So
//! a packet costs nothing here, and a flow one look for each timeout that it outlives.

/// Buckets in the ring. What is due later waits in the farthest, and is then set again.
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

/// Where in the ring a timer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(i64);

/// A place in the table, and which of its tenants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) place: u32,
    pub(super) tenant: u32,
    /// Set when a connection closed, besides the timer that the flow has anyway.
    pub(super) closing: bool,
}

impl Wheel {
    /// Timers of up to `longest_ns` fit the ring.
    pub(super) fn new(longest_ns: i64) -> Self {
        Self {
            buckets: vec![Vec::new(); usize::try_from(BUCKETS).unwrap_or(0)],
            longest_ns,
            width_ns: (longest_ns / (BUCKETS - 2)).max(1),
            next: 0,
            started: false,
        }
    }

    /// The ring begins at this time, unless it has begun.
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

    /// The bucket for what is due then; the nearest for what is not in the ring.
    fn number(&self, due_ns: i64) -> i64 {
        let bucket = due_ns.div_euclid(self.width_ns);
        bucket.clamp(self.next, self.next + BUCKETS - 1)
    }

    /// Takes every timer whose bucket lies wholly before the horizon.
    pub(super) fn fire(&mut self, horizon_ns: i64, mut take: impl FnMut(&mut Self, Timer)) {
        let until = horizon_ns.div_euclid(self.width_ns);
        if until < self.next - BUCKETS {
            self.rewind(until, take);
            return;
        }
        // After a long silence each bucket needs to be looked at once, not once for each round.
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

    /// The clock has gone far back: everything waits in the wrong place, and is looked at once.
    fn rewind(&mut self, until: i64, mut take: impl FnMut(&mut Self, Timer)) {
        let waiting: Vec<Timer> = self.buckets.iter_mut().flat_map(std::mem::take).collect();
        self.next = until;
        for timer in waiting {
            take(self, timer);
        }
    }

    /// Takes a timer among those that are due first, and says how to tell whether it was set anew
    /// since.
    pub(super) fn take_first(&mut self) -> Option<(Timer, Place)> {
        for ahead in 0..BUCKETS {
            let bucket = self.next + ahead;
            let timers = self.bucket(bucket);
            if let Some(timer) = timers.pop() {
                // Each bucket has been as large as the table lets it: together they would be larger by far.
                if timers.is_empty() {
                    *timers = Vec::new();
                }
                return Some((timer, Place(bucket)));
            }
        }
        None
    }

    /// Whether what is due then belongs behind the place that its timer was found in.
    pub(super) fn is_behind(&self, place: Place, due_ns: i64) -> bool {
        self.number(due_ns) > place.0
    }

    fn bucket(&mut self, number: i64) -> &mut Vec<Timer> {
        let index = usize::try_from(number.rem_euclid(BUCKETS)).unwrap_or(0);
        &mut self.buckets[index]
    }
}
