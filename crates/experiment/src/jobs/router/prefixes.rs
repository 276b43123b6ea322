//! Prefixes to look up in, what their answers are, and addresses to look up: as files that every
//! engine reads. Numbers are in the machine's byte order, IPv6 addresses as packets carry them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use lpm::{Address, Rib};
use router::routes::{self, Options};
use splitmix::SplitMix64;

use super::tables::Traffic;
use crate::BadInput;

/// Next hops of tables that have none, where the load does not say.
pub(super) const NEXT_HOPS: u16 = 200;

/// A table, by address and then shorter before longer.
pub(super) struct Prefixes {
    /// 32 or 128.
    bits: u8,
    routes: Vec<Route>,
    /// The ranges of addresses with one answer: the first address, and the answer. Ascending.
    ranges: Vec<(u128, u16)>,
}

#[derive(Clone, Copy)]
struct Route {
    first: u128,
    len: u8,
    hop: u16,
}

/// An announcement, or a withdrawal where the next hop is 0.
pub(super) struct Update {
    first: u128,
    len: u8,
    hop: u16,
}

impl Prefixes {
    /// The prefixes of one family from a file of any format that lowroad imports, `count` of them;
    /// those without next hops get `hops` ones by a hash.
    pub(super) fn read(path: &Path, six: bool, count: usize, hops: u16) -> Result<Self> {
        let options = Options::default();
        let mut read = routes::open(path, &options).map_err(|error| BadInput(error.to_string()))?;
        read.routes.spread(hops);
        let table = if six {
            Self::of(&read.routes.numbered6()?.rib)
        } else {
            Self::of(&read.routes.numbered4()?.rib)
        };
        if table.routes.len() == count {
            return Ok(table);
        }
        Err(BadInput(format!(
            "{} has {} prefixes of this family, but the load asks for {count}",
            path.display(),
            table.routes.len()
        ))
        .into())
    }

    /// Prefixes with the lengths of the Internet's tables, and nothing else of them: addresses are
    /// random, so fewer lie in others.
    pub(super) fn generated(six: bool, count: usize, hops: u16, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let (bits, lengths) = if six { (128, LENGTHS6) } else { (32, LENGTHS4) };
        let total: u64 = lengths.iter().map(|(_, weight)| weight).sum();
        let mut taken = BTreeSet::new();
        while taken.len() < count {
            let mut draw = random.next_u64() % total;
            let drawn = lengths.iter().find(|(_, weight)| {
                let found = draw < *weight;
                draw = draw.saturating_sub(*weight);
                found
            });
            let len = drawn.map_or(24, |(len, _)| *len);
            // 2000::/3, and IPv4 below multicast.
            let address = if six {
                1 << 125 | random.next_u128() >> 3
            } else {
                (random.next_u128() >> 96) % (0xe0 << 24)
            };
            taken.insert((address & mask(bits, len), len));
        }
        let route = |(first, len)| Route {
            first,
            len,
            hop: u16::try_from(random.next_u64() % u64::from(hops)).unwrap_or(0) + 1,
        };
        Self::new(bits, taken.into_iter().map(route).collect())
    }

    fn of<A: Address + Into<u128>>(rib: &Rib<A>) -> Self {
        let route = |(prefix, hop): (lpm::Prefix<A>, lpm::NextHop)| Route {
            first: prefix.first().into(),
            len: prefix.len(),
            hop: hop.get(),
        };
        Self::new(A::BITS, rib.iter().map(route).collect())
    }

    fn new(bits: u8, routes: Vec<Route>) -> Self {
        let ranges = ranges(bits, &routes);
        Self {
            bits,
            routes,
            ranges,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    /// The first address, the length and the next hop of each, of IPv4.
    pub(super) fn routes4(&self) -> impl Iterator<Item = (Ipv4Addr, u8, u16)> {
        let address = |first: u128| Ipv4Addr::from_bits(u32::try_from(first).unwrap_or(u32::MAX));
        let routes = self.routes.iter();
        routes.map(move |route| (address(route.first), route.len, route.hop))
    }

    /// Records of an address, a length, a zero and a next hop.
    pub(super) fn routes_file(&self) -> Vec<u8> {
        self.records(self.routes.iter().map(|r| (r.first, r.len, r.hop)))
    }

    /// As `routes_file`, of updates in their order.
    pub(super) fn updates_file(&self, updates: &[Update]) -> Vec<u8> {
        self.records(updates.iter().map(|u| (u.first, u.len, u.hop)))
    }

    fn records(&self, routes: impl Iterator<Item = (u128, u8, u16)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (first, len, hop) in routes {
            self.put(&mut bytes, first);
            bytes.extend([len, 0]);
            bytes.extend(hop.to_ne_bytes());
        }
        bytes
    }

    fn put(&self, bytes: &mut Vec<u8>, address: u128) {
        if self.bits == 128 {
            bytes.extend(address.to_be_bytes());
        } else {
            let address = u32::try_from(address).unwrap_or(u32::MAX);
            bytes.extend(address.to_ne_bytes());
        }
    }

    /// Addresses, and the next hop of each.
    pub(super) fn keys_files(&self, keys: &[u128]) -> (Vec<u8>, Vec<u8>) {
        let (mut bytes, mut answers) = (Vec::new(), Vec::new());
        for &key in keys {
            self.put(&mut bytes, key);
            answers.extend(self.answer(key).to_ne_bytes());
        }
        (bytes, answers)
    }

    /// By the definition, through ranges that were made of sorted prefixes alone.
    pub(super) fn answer(&self, address: u128) -> u16 {
        let after = self.ranges.partition_point(|&(first, _)| first <= address);
        self.ranges[after - 1].1
    }

    pub(super) fn keys(&self, traffic: Traffic, count: usize, seed: u64) -> Result<Vec<u128>> {
        let mut random = SplitMix64::new(seed);
        let all: Vec<Route> = match traffic {
            Traffic::In32 => self
                .routes
                .iter()
                .copied()
                .filter(|r| r.len <= 32)
                .collect(),
            _ => self.routes.clone(),
        };
        (!all.is_empty())
            .then_some(())
            .context("no prefix is short enough")?;
        let spare = 128 - u32::from(self.bits);
        Ok(match traffic {
            Traffic::Sequential => {
                let step = |at: u128| (0x0100_0000 + 671 * at) & mask(self.bits, self.bits);
                self.routed((0..).map(step), count)
            }
            Traffic::Zipf => self.zipf(all, count, &mut random),
            Traffic::Uniform => {
                let any = std::iter::repeat_with(|| random.next_u128() >> spare);
                self.routed(any, count)
            }
            _ => (0..count)
                .map(|_| {
                    let route = all[random.index(all.len())];
                    self.inside(route, &mut random)
                })
                .collect(),
        })
    }

    /// The addresses that have a route.
    fn routed(&self, addresses: impl Iterator<Item = u128>, count: usize) -> Vec<u128> {
        let routed = addresses.filter(|&address| self.answer(address) != lpm::NO_ROUTE);
        routed.take(count).collect()
    }

    /// A random address of a prefix that is drawn in proportion to 1/rank, ranks being random.
    fn zipf(&self, mut ranked: Vec<Route>, count: usize, random: &mut SplitMix64) -> Vec<u128> {
        random.shuffle(&mut ranked);
        let mut sum = 0.0;
        let share = (1..=ranked.len()).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        let cumulative: Vec<f64> = share.collect();
        (0..count)
            .map(|_| {
                let draw = random.unit() * sum;
                let rank = cumulative.partition_point(|&upto| upto <= draw);
                self.inside(ranked[rank.min(ranked.len() - 1)], random)
            })
            .collect()
    }

    fn inside(&self, route: Route, random: &mut SplitMix64) -> u128 {
        let host =
            (random.next_u128() >> (128 - u32::from(self.bits))) & !mask(self.bits, route.len);
        route.first | host
    }

    /// The updates of a full table: mostly a known prefix with another next hop, one in ten a
    /// withdrawal, as many announced again; few prefixes have most of it.
    pub(super) fn churn(&self, hops: u16, count: usize, seed: u64) -> Vec<Update> {
        let mut random = SplitMix64::new(seed);
        let mut ranked = self.routes.clone();
        random.shuffle(&mut ranked);
        let (mut away, mut gone) = (Vec::new(), vec![false; ranked.len()]);
        let mut updates = Vec::with_capacity(count);
        while updates.len() < count {
            let draw = random.unit();
            let hop = u16::try_from(random.next_u64() % u64::from(hops)).unwrap_or(0) + 1;
            // Rank r with probability about 1/r: uniform in the logarithm.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a place in the list"
            )]
            let rank = (ranked.len() as f64).powf(random.unit()) as usize;
            let rank = rank.min(ranked.len() - 1);
            let (at, hop) = if draw < 0.1 && !gone[rank] {
                away.push(rank);
                gone[rank] = true;
                (rank, lpm::NO_ROUTE)
            } else if draw < 0.2 && !away.is_empty() {
                let back = away.swap_remove(random.index(away.len()));
                gone[back] = false;
                (back, hop)
            } else if !gone[rank] {
                (rank, hop)
            } else {
                continue;
            };
            let Route { first, len, .. } = ranked[at];
            updates.push(Update { first, len, hop });
        }
        updates
    }
}

/// The first `len` of `bits` bits.
fn mask(bits: u8, len: u8) -> u128 {
    let all = u128::MAX >> (128 - u32::from(bits));
    let host = u128::MAX
        .checked_shr(128 - u32::from(bits - len))
        .unwrap_or(0);
    all & !host
}

fn ranges(bits: u8, sorted: &[Route]) -> Vec<(u128, u16)> {
    let all = mask(bits, bits);
    let mut ranges = vec![(0, lpm::NO_ROUTE)];
    let mut open: Vec<(u128, u16)> = Vec::new();
    let close = |open: &mut Vec<(u128, u16)>, ranges: &mut Vec<(u128, u16)>| {
        let ended = open.pop().map_or(0, |(last, _)| last);
        let outer = open.last().map_or(lpm::NO_ROUTE, |&(_, hop)| hop);
        if ended < all {
            ranges.push((ended + 1, outer));
        }
    };
    for route in sorted {
        while open.last().is_some_and(|&(last, _)| last < route.first) {
            close(&mut open, &mut ranges);
        }
        ranges.push((route.first, route.hop));
        let host = all & !mask(bits, route.len);
        open.push((route.first | host, route.hop));
    }
    while !open.is_empty() {
        close(&mut open, &mut ranges);
    }
    // The last of several ranges at one address counts.
    ranges.reverse();
    ranges.dedup_by_key(|&mut (first, _)| first);
    ranges.reverse();
    ranges
}

/// How many prefixes of each length a table of the Internet had in October 2025.
#[rustfmt::skip]
const LENGTHS4: &[(u8, u64)] = &[
    (8, 16), (9, 13), (10, 38), (11, 103), (12, 299), (13, 581), (14, 1203), (15, 2100),
    (16, 13490), (17, 8235), (18, 13798), (19, 24870), (20, 42611), (21, 50750), (22, 108_623),
    (23, 96510), (24, 537_698), (25, 20), (26, 3), (27, 11), (28, 18), (29, 17), (30, 3), (31, 3),
    (32, 886),
];
#[rustfmt::skip]
const LENGTHS6: &[(u8, u64)] = &[
    (20, 16), (24, 30), (28, 193), (29, 4371), (30, 650), (31, 284), (32, 22548), (33, 2926),
    (34, 2603), (35, 1043), (36, 5996), (37, 880), (38, 1617), (39, 1377), (40, 13418), (41, 903),
    (42, 2301), (43, 1001), (44, 14365), (45, 1553), (46, 3039), (47, 3153), (48, 75488), (49, 11),
    (56, 24), (58, 20), (64, 184), (126, 19), (127, 42), (128, 6),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(table: &Prefixes, address: u128) -> u16 {
        let holding = table
            .routes
            .iter()
            .filter(|route| address & mask(table.bits, route.len) == route.first);
        holding.max_by_key(|route| route.len).map_or(0, |r| r.hop)
    }

    #[test]
    fn answers_are_of_the_longest_prefix() {
        for six in [false, true] {
            let mut table = Prefixes::generated(six, 300, 9, 3);
            let route = |first, len, hop| Route { first, len, hop };
            // Nested ones at both ends of the space.
            let last = mask(table.bits, table.bits);
            table
                .routes
                .extend([route(0, 0, 1), route(0, 9, 2), route(last, table.bits, 3)]);
            table.routes.sort_by_key(|r| (r.first, r.len));
            table.routes.dedup_by_key(|r| (r.first, r.len));
            let table = Prefixes::new(table.bits, table.routes);
            let mut keys = vec![0, 1, last, last - 1];
            for route in &table.routes {
                let end = route.first | last & !mask(table.bits, route.len);
                keys.extend([
                    route.first.saturating_sub(1),
                    route.first,
                    end,
                    end.saturating_add(1).min(last),
                ]);
            }
            for key in keys {
                assert_eq!(table.answer(key), longest(&table, key), "{key:x}");
            }
        }
    }

    #[test]
    fn keys_of_each_traffic_are_as_many_as_asked_for_and_routed() {
        let table = Prefixes::generated(false, 2000, 9, 3);
        for traffic in [
            Traffic::Uniform,
            Traffic::PerPrefix,
            Traffic::Zipf,
            Traffic::Sequential,
        ] {
            let keys = table.keys(traffic, 512, 1).unwrap();
            assert_eq!(keys.len(), 512);
            assert!(
                keys.iter().all(|&key| longest(&table, key) != 0),
                "{traffic}"
            );
        }
    }

    #[test]
    fn a_withdrawn_prefix_is_announced_before_it_changes_again() {
        let table = Prefixes::generated(true, 50, 9, 3);
        let mut gone = std::collections::HashSet::new();
        let updates = table.churn(9, 5000, 1);
        for update in &updates {
            let prefix = (update.first, update.len);
            match update.hop {
                lpm::NO_ROUTE => assert!(gone.insert(prefix)),
                _ => drop(gone.remove(&prefix)),
            }
        }
        let withdrawn = updates.iter().filter(|u| u.hop == 0).count();
        assert!((100..1000).contains(&withdrawn), "{withdrawn}");
    }
}
