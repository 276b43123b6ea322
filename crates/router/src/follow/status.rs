//! How following goes, in numbers.

use std::time::Duration;

use netdev::monitor::Entry;
use serde::Serialize;

use super::side::Side;
use super::table::Table;
use crate::forward::{Forwarding, Punt};

/// All of it, at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub sync: Sync,
    pub ipv4: Routes,
    pub ipv6: Routes,
    pub changes: Changes,
    pub told: Told,
    /// How often everything was listed, the first time included.
    pub listings: u64,
    /// How often the kernel had more changes than room for them.
    pub overruns: u64,
    /// Policy rules beyond those that every system has: whoever runs the plane leaves to the kernel what they are about.
    pub foreign_rules: usize,
    pub event_lag_us: Lag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    Loading,
    Following,
    /// Everything is being listed anew, while changes go on being followed.
    Listing,
    Failed,
}

/// Of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Routes {
    /// Prefixes that the kernel has routes for.
    pub prefixes: usize,
    /// Prefixes in the data plane, neighbours' included.
    pub installed: usize,
    /// Prefixes that the plane had no room or number for; their packets are left to the kernel, and they are tried again.
    pub unplaced: usize,
    /// Of these, those without room.
    pub without_room: usize,
    /// Whether all packets of the family are left to the kernel, because others would answer for one of these.
    pub withheld: bool,
    pub next_hops: Numbers,
}

/// Next hops with numbers, by what they mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    pub neighbours: usize,
    pub groups: usize,
    pub unresolved: usize,
    /// Left to the kernel for another reason.
    pub kernel: usize,
    pub drops: usize,
}

/// Changes that came, by what they were of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub routes: u64,
    pub neighbours: u64,
    pub links: u64,
    pub addresses: u64,
    pub next_hops: u64,
    pub rules: u64,
}

/// Calls to the data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Told {
    pub routes: u64,
    pub next_hops: u64,
    pub refusals: u64,
}

/// How long after the kernel's message the plane was told all that follows from it. Of several
/// messages that wait together, all count as having come with the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lag {
    pub last: u64,
    pub max: u64,
    pub count: u64,
    /// How many took less than 1, 2, 4, ... microseconds and not less than half of it; the last
    /// holds all above.
    pub buckets: [u64; 32],
}

impl Lag {
    pub(super) fn note(&mut self, lag: Duration) {
        let us = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.last = us;
        self.max = self.max.max(us);
        self.count += 1;
        let bits = u64::BITS - us.leading_zeros();
        self.buckets[(bits as usize).min(self.buckets.len() - 1)] += 1;
    }

    /// An upper bound of what so many per cent took no longer than; 0 where nothing came.
    pub fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut below = 0;
        for (bits, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= wanted && below > 0 {
                return (1_u64 << bits).min(self.max.max(1));
            }
        }
        0
    }
}

impl Changes {
    pub(super) fn count(&mut self, entry: &Entry<'_>) {
        *match entry {
            Entry::Route(_) => &mut self.routes,
            Entry::Neighbour(_) => &mut self.neighbours,
            Entry::Link(_) => &mut self.links,
            Entry::Address(_) => &mut self.addresses,
            Entry::NextHop(_) => &mut self.next_hops,
            Entry::Rule(_) => &mut self.rules,
        } += 1;
    }
}

pub(super) fn routes_of<A: Side>(table: &Table<A>) -> Routes {
    let (prefixes, installed) = table.len();
    let (without_room, without_number) = table.shortage.len();
    let mut next_hops = Numbers::default();
    for (_, way) in table.ways.numbered() {
        *match &way.told {
            Some(Forwarding::Neighbour(_)) => &mut next_hops.neighbours,
            Some(Forwarding::Group(_)) => &mut next_hops.groups,
            Some(Forwarding::Drop) => &mut next_hops.drops,
            Some(Forwarding::Punt(Punt::Unresolved)) => &mut next_hops.unresolved,
            Some(Forwarding::Punt(_)) | None => &mut next_hops.kernel,
        } += 1;
    }
    Routes {
        prefixes,
        installed,
        unplaced: without_room + without_number,
        without_room,
        withheld: table.shortage.has_unavailable(),
        next_hops,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_counted_by_powers_of_two() {
        let mut lag = Lag::default();
        assert_eq!(lag.percentile(99), 0);
        for us in [0, 1, 3, 900] {
            lag.note(Duration::from_micros(us));
        }
        assert_eq!((lag.buckets[0], lag.buckets[1], lag.buckets[2]), (1, 1, 1));
        assert_eq!(lag.buckets[10], 1);
        assert_eq!((lag.last, lag.max, lag.count), (900, 900, 4));
        assert_eq!((lag.percentile(50), lag.percentile(100)), (2, 900));
        lag.note(Duration::from_secs(1 << 40));
        assert_eq!(lag.buckets[31], 1);
    }
}
