//! The timing of a flow's packets: active and idle periods, subflows, bulks.

use super::moments::Times;

/// The gaps that separate periods, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// A longer gap ends an active period.
    pub active_ns: u64,
    /// A longer gap starts another subflow.
    pub subflow_ns: u64,
    /// A longer gap ends a bulk.
    pub bulk_ns: u64,
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            active_ns: 5_000_000_000,
            subflow_ns: 1_000_000_000,
            bulk_ns: 1_000_000_000,
        }
    }
}

/// Active and idle periods, of both directions together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Periods that have ended. Most flows have none, so they are boxed.
    ended: Option<Box<PeriodStats>>,
    /// Duration of the current active period so far.
    open_ns: u64,
    /// Gaps that started another subflow.
    pub subflow_gaps: u64,
}

/// Periods that have ended. A long gap ends an active period and is itself an idle period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PeriodStats {
    active: Times,
    idle: Times,
}

impl Periods {
    /// Builds the periods from the ended ones and the duration of the current one.
    pub(crate) fn new(active: Times, idle: Times, open_ns: u64, subflow_gaps: u64) -> Self {
        let ended = PeriodStats { active, idle };
        Self {
            ended: (ended != PeriodStats::default()).then(|| Box::new(ended)),
            open_ns,
            subflow_gaps,
        }
    }

    #[inline]
    pub(super) fn gap(&mut self, gap_ns: u64, gaps: &Gaps) {
        if gap_ns > gaps.active_ns {
            let ended = self.ended.get_or_insert_default();
            ended.active.add(self.open_ns);
            ended.idle.add(gap_ns);
            self.open_ns = 0;
        } else {
            self.open_ns += gap_ns;
        }
        self.subflow_gaps += u64::from(gap_ns > gaps.subflow_ns);
    }

    /// All active periods, including the current one.
    pub fn active(&self) -> Times {
        let mut active = self
            .ended
            .as_ref()
            .map_or_else(Times::default, |of| of.active);
        active.add(self.open_ns);
        active
    }

    /// Every gap that ended an active period.
    pub fn idle(&self) -> Times {
        self.ended
            .as_ref()
            .map_or_else(Times::default, |of| of.idle)
    }
}

/// The minimum number of consecutive packets with payload in a bulk.
const MIN_BULK_PACKETS: u64 = 4;

/// Bulks of one direction. A bulk has at least four packets with payload, no long gap between them, and no packet
/// with payload from the other side in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bulks {
    pub count: u64,
    pub packets: u64,
    pub bytes: u64,
    pub duration_ns: u64,
    pub(crate) run: Run,
}

/// Consecutive packets that are a bulk or may become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) duration_ns: u64,
    pub(crate) last_ns: i64,
}

impl Bulks {
    /// Counts a packet with payload in this direction.
    #[inline]
    pub(super) fn packet(&mut self, time_ns: i64, payload: u32, gaps: &Gaps) {
        let gap = gap_between(self.run.last_ns, time_ns);
        if self.run.packets == 0 || gap > gaps.bulk_ns {
            self.run = Run {
                last_ns: time_ns,
                ..Run::default()
            };
        } else {
            self.run.duration_ns += gap;
            self.run.last_ns = self.run.last_ns.max(time_ns);
        }
        self.run.packets += 1;
        self.run.bytes += u64::from(payload);
        if self.run.packets == MIN_BULK_PACKETS {
            self.count += 1;
            self.packets += self.run.packets;
            self.bytes += self.run.bytes;
            self.duration_ns += self.run.duration_ns;
        } else if self.run.packets > MIN_BULK_PACKETS {
            self.packets += 1;
            self.bytes += u64::from(payload);
            self.duration_ns += gap;
        }
    }

    /// Ends the run because the other direction sent a packet with payload.
    #[inline]
    pub(super) fn interrupt(&mut self) {
        self.run.packets = 0;
    }
}

/// Nanoseconds from one packet to the next; 0 if the clock went back.
#[inline]
pub(super) fn gap_between(earlier: i64, later: i64) -> u64 {
    u64::try_from(later.saturating_sub(earlier)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_long_gap_closes_a_period_and_the_end_closes_the_last() {
        let mut periods = Periods::default();
        for gap in [SECOND, 2 * SECOND, 6 * SECOND, SECOND] {
            periods.gap(gap, &Gaps::default());
        }
        let active = periods.active();
        assert_eq!((active.count, active.sum), (2, 4 * SECOND));
        assert_eq!((periods.idle().count, periods.idle().sum), (1, 6 * SECOND));
        assert_eq!(periods.subflow_gaps, 2);
    }

    fn bulks(times_ms: &[i64]) -> Bulks {
        let mut bulks = Bulks::default();
        for time in times_ms {
            bulks.packet(time * 1_000_000, 100, &Gaps::default());
        }
        bulks
    }

    #[test]
    fn four_packets_are_a_bulk_and_three_are_none() {
        assert_eq!(bulks(&[0, 1, 2]).count, 0);
        let five = bulks(&[0, 1, 2, 3, 5]);
        assert_eq!((five.count, five.packets, five.bytes), (1, 5, 500));
        assert_eq!(five.duration_ns, 5_000_000);
    }

    #[test]
    fn a_long_gap_or_the_other_side_starts_anew() {
        assert_eq!(bulks(&[0, 1, 2, 1500, 1501]).count, 0);
        let mut bulks = bulks(&[0, 1, 2]);
        bulks.interrupt();
        bulks.packet(3_000_000, 100, &Gaps::default());
        assert_eq!(bulks.count, 0);
    }
}
