//! What next hops stand for, as the program reads it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use bpf::{Map, Plain};
use lpm::NextHop;
use sys::huge::{Array, Region};

use super::entries::{self, BUCKETS, HOPS};
use super::slots::Slots;
use super::{End, Error, Settings};
use crate::forward::{Family, Forwarding, Member, Punt};
use crate::skel::router::{RouterSkel, types};

#[derive(Debug)]
pub(super) struct Hops {
    /// Of IPv4's next hops, then of IPv6's.
    meanings: Array<AtomicU64>,
    adjacencies: (Map<u32, types::adjacency>, Slots),
    groups: (Map<u32, types::group>, Slots),
    /// Of each group, by its place among `meanings`.
    buckets: HashMap<usize, Box<[u16; BUCKETS]>>,
}

impl Hops {
    pub(super) fn new(settings: &Settings, skel: &RouterSkel<'_>) -> Result<Self, Error> {
        let map = &skel.maps.meanings;
        let unmapped = |source| Error::Map {
            table: "meanings".to_owned(),
            source,
        };
        let bytes = 2 * HOPS * size_of::<u64>();
        let region = Region::shared(map.as_fd(), bytes).map_err(unmapped)?;
        Ok(Self {
            meanings: Array::within(region, 2 * HOPS).map_err(unmapped)?,
            adjacencies: (
                Map::new(&skel.maps.adjacencies)?,
                Slots::new("neighbours", settings.neighbours),
            ),
            groups: (
                Map::new(&skel.maps.groups)?,
                Slots::new("groups of next hops", settings.groups),
            ),
            buckets: HashMap::new(),
        })
    }

    /// What was written for it is there before the meaning, which changes at once.
    pub(super) fn set(
        &mut self,
        family: Family,
        hop: NextHop,
        to: &Forwarding,
    ) -> Result<(), Error> {
        let at = place(family, hop);
        let meaning = match to {
            Forwarding::Neighbour(adjacency) => {
                let value = entries::adjacency(adjacency);
                let slot = put(&mut self.adjacencies, &value)?;
                entries::meaning(entries::NEIGHBOUR, slot)
            }
            Forwarding::Group(members) => self.group(at, members)?,
            Forwarding::Drop => entries::meaning(entries::DROP, 0),
            Forwarding::Punt(punt) => entries::meaning(entries::PUNT, end(*punt) as u32),
        };
        if !matches!(to, Forwarding::Group(_)) {
            self.buckets.remove(&at);
        }
        let before = self.meanings[at].swap(meaning, Ordering::AcqRel);
        self.retire(before);
        Ok(())
    }

    fn group(&mut self, at: usize, members: &[Member]) -> Result<u64, Error> {
        if members.is_empty() || members.iter().any(|member| member.weight == 0) {
            return Err(Error::Group);
        }
        let before = self.buckets.get(&at).map(|buckets| **buckets);
        let buckets = share(members, before.as_ref());
        let slot = put(&mut self.groups, &types::group { bucket: buckets })?;
        self.buckets.insert(at, Box::new(buckets));
        Ok(entries::meaning(entries::GROUP, slot))
    }

    /// What a meaning referred to, once nothing has that meaning.
    fn retire(&mut self, meaning: u64) {
        let (kind, slot) = split(meaning);
        match kind {
            entries::NEIGHBOUR => self.adjacencies.1.retire(slot),
            entries::GROUP => self.groups.1.retire(slot),
            _ => {}
        }
    }
}

/// Writes a value where nothing leads yet.
fn put<V: Plain>(to: &mut (Map<u32, V>, Slots), value: &V) -> Result<u32, Error> {
    let (map, slots) = to;
    let slot = slots.take()?;
    match map.set(&slot, value) {
        Ok(()) => Ok(slot),
        Err(error) => {
            slots.give_back(slot);
            Err(error.into())
        }
    }
}

fn place(family: Family, hop: NextHop) -> usize {
    match family {
        Family::V4 => usize::from(hop.get()),
        Family::V6 => HOPS + usize::from(hop.get()),
    }
}

fn split(meaning: u64) -> (u32, u32) {
    let low = meaning & u64::from(u32::MAX);
    let number = |half: u64| u32::try_from(half).unwrap_or(u32::MAX);
    (number(low), number(meaning >> 32))
}

fn end(punt: Punt) -> End {
    match punt {
        Punt::Local => End::Local,
        Punt::Refused => End::Refused,
        Punt::Unresolved => End::Unresolved,
        Punt::Device => End::RouteDevice,
    }
}

/// Shares a group's flows among its members by their weights, as near as whole parts come. A part stays
/// with the member that it had as far as that member's share reaches, so that few flows change their way.
fn share(members: &[Member], before: Option<&[u16; BUCKETS]>) -> [u16; BUCKETS] {
    let mut left = quotas(members);
    let mut buckets = [0; BUCKETS];
    let mut take = |hop: u16| {
        let of = |member: &&mut (u16, usize)| member.0 == hop && member.1 > 0;
        left.iter_mut().find(of).is_some_and(|member| {
            member.1 -= 1;
            true
        })
    };
    if let Some(before) = before {
        for (bucket, &hop) in buckets.iter_mut().zip(before) {
            if take(hop) {
                *bucket = hop;
            }
        }
    }
    // One after another, so that neighbouring parts go different ways.
    let mut turn = 0;
    for bucket in buckets.iter_mut().filter(|bucket| **bucket == 0) {
        while left[turn % left.len()].1 == 0 {
            turn += 1;
        }
        let member = &mut left[turn % members.len()];
        (*bucket, member.1) = (member.0, member.1 - 1);
        turn += 1;
    }
    buckets
}

/// Parts of each member: largest remainders, earlier members first. They add up to all.
fn quotas(members: &[Member]) -> Vec<(u16, usize)> {
    let total: usize = members.iter().map(|one| usize::from(one.weight)).sum();
    let exact = |member: &Member| usize::from(member.weight) * BUCKETS;
    let mut quotas: Vec<_> = members
        .iter()
        .map(|member| (member.hop.get(), exact(member) / total))
        .collect();
    let given: usize = quotas.iter().map(|quota| quota.1).sum();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(exact(&members[at]) % total));
    for &at in order.iter().take(BUCKETS - given) {
        quotas[at].1 += 1;
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(weights: &[(u16, u16)]) -> Vec<Member> {
        let member = |&(hop, weight): &(u16, u16)| Member {
            hop: NextHop::new(hop).unwrap(),
            weight,
        };
        weights.iter().map(member).collect()
    }

    fn count(buckets: &[u16; BUCKETS], hop: u16) -> usize {
        buckets.iter().filter(|&&bucket| bucket == hop).count()
    }

    #[test]
    fn flows_are_shared_by_weight() {
        let buckets = share(&members(&[(1, 1), (2, 3)]), None);
        assert_eq!([1, 2].map(|hop| count(&buckets, hop)), [64, 192]);
        let buckets = share(&members(&[(5, 1), (6, 1), (7, 1)]), None);
        assert_eq!([5, 6, 7].map(|hop| count(&buckets, hop)), [86, 85, 85]);
        assert_eq!(buckets[..4], [5, 6, 7, 5]);
    }

    #[test]
    fn flows_of_members_that_stay_keep_their_way() {
        let before = share(&members(&[(1, 1), (2, 1), (3, 1), (4, 1)]), None);
        let after = share(&members(&[(1, 1), (2, 1), (4, 1)]), Some(&before));
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == 3);
        }
        let again = share(&members(&[(1, 1), (2, 1), (3, 1), (4, 1)]), Some(&after));
        let moved = after.iter().zip(&again).filter(|(a, b)| a != b).count();
        assert_eq!(moved, 64);
    }
}
