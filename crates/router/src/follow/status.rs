//! How following goes, in numbers.

use std::time::Duration;

use netdev::monitor::Entry;
use serde::Serialize;

use super::address_family::AddressFamily;
use super::table::Table;
use crate::forward::{Forwarding, Punt};

/// The state of a follower at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub sync: SyncState,
    pub ipv4: Routes,
    pub ipv6: Routes,
    pub changes: Changes,
    pub plane_calls: PlaneCalls,
    /// Number of complete dumps, including the first.
    pub listings: u64,
    /// Number of receive buffer overruns.
    pub overruns: u64,
    /// Policy rules beyond those that every system has: whoever runs the plane leaves to the kernel what they are about.
    pub foreign_rules: usize,
    pub event_lag_us: Lag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncState {
    Loading,
    Following,
    /// A new dump is running, while notifications are still handled.
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

/// Numbered next hops by the kind of their forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    pub neighbours: usize,
    pub groups: usize,
    pub unresolved: usize,
    /// Left to the kernel for another reason.
    pub kernel: usize,
    pub drops: usize,
}

/// Notifications by the kind of their object.
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
pub struct PlaneCalls {
    pub routes: u64,
    pub next_hops: u64,
    pub refusals: u64,
}

/// Time from a notification to the last call of the plane that follows from it. Notifications that wait
/// together all count from the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lag {
    pub last: u64,
    pub max: u64,
    pub count: u64,
    /// The sum of all lags, in microseconds.
    pub sum: u64,
    /// Bucket n counts lags of at least 2^(n-1) and less than 2^n microseconds. The last bucket also counts
    /// all longer ones.
    pub buckets: [u64; 32],
}

impl Lag {
    pub(super) fn note(&mut self, lag: Duration) {
        let us = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.last = us;
        self.max = self.max.max(us);
        self.count += 1;
        self.sum = self.sum.saturating_add(us);
        let bits = u64::BITS - us.leading_zeros();
        self.buckets[(bits as usize).min(self.buckets.len() - 1)] += 1;
    }

    /// An upper bound of a percentile in microseconds; 0 without values.
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

pub(super) fn routes_of<A: AddressFamily>(table: &Table<A>) -> Routes {
    let (prefixes, installed) = table.len();
    let (without_room, without_number) = table.shortage.len();
    let mut next_hops = Numbers::default();
    for (_, next_hop) in table.next_hops.numbered() {
        *match &next_hop.installed {
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
