//! Helpers of tests and measurements: prefixes, a plain oracle, reproducible random numbers.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::use_self,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "shared by tests and measurements, each of which uses a part of it"
)]

pub mod churn;
pub mod concurrent;
pub mod table;

use std::io::Read;

pub use splitmix::SplitMix64 as Rng;

use lpm::{Address, NextHop, Prefix, Rib};

/// An address of which every bit is random, and its neighbours.
pub trait Random: Address {
    fn random(rng: &mut Rng) -> Self;
    fn before(self) -> Self;
    fn after(self) -> Self;
    fn or(self, other: Self) -> Self;
    fn low(self) -> u64;
}

impl Random for u32 {
    fn random(rng: &mut Rng) -> Self {
        rng.next_u64() as u32
    }
    fn before(self) -> Self {
        self.wrapping_sub(1)
    }
    fn after(self) -> Self {
        self.wrapping_add(1)
    }
    fn or(self, other: Self) -> Self {
        self | other
    }
    fn low(self) -> u64 {
        self.into()
    }
}

impl Random for u128 {
    fn random(rng: &mut Rng) -> Self {
        rng.next_u128()
    }
    fn before(self) -> Self {
        self.wrapping_sub(1)
    }
    fn after(self) -> Self {
        self.wrapping_add(1)
    }
    fn or(self, other: Self) -> Self {
        self | other
    }
    fn low(self) -> u64 {
        (self >> 64) as u64 ^ self as u64
    }
}

/// A random address of a prefix.
pub fn inside<A: Random>(prefix: Prefix<A>, rng: &mut Rng) -> A {
    A::random(rng)
        .or(A::mask(prefix.len()))
        .masked(prefix.last())
        .or(prefix.first())
}

pub fn hop(number: u64) -> NextHop {
    NextHop::new(u16::try_from(number).unwrap()).unwrap()
}

/// The next hop of a prefix of the real table, which has none: 1..=`hops`, evenly.
pub fn hop_of<A: Random>(prefix: Prefix<A>, hops: u64) -> NextHop {
    let mixed = Rng::new(prefix.first().low() << 8 ^ u64::from(prefix.len())).next_u64();
    hop(1 + mixed % hops)
}

/// The real table's prefixes of one family.
pub fn real<A: Random>(path: &std::path::Path, hops: u64) -> Rib<A> {
    let file = std::fs::File::open(path.join("fib/prefixes.txt.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let ours = text
        .lines()
        .filter(|line| line.contains(':') == (A::BITS == 128));
    let prefixes = ours.map(|line| line.trim().parse::<Prefix<A>>().unwrap());
    prefixes
        .map(|prefix| (prefix, hop_of(prefix, hops)))
        .collect()
}

/// Answers by the definition: of all prefixes that hold the address, the longest.
pub fn longest<A: Address>(routes: &[(Prefix<A>, NextHop)], address: A) -> u16 {
    let holding = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    holding
        .max_by_key(|(prefix, _)| prefix.len())
        .map_or(0, |(_, hop)| hop.get())
}

/// The ranges of addresses with one answer: (first address, answer), ascending. Made from sorted
/// prefixes alone.
pub fn ranges<A: Random>(routes: impl Iterator<Item = (Prefix<A>, NextHop)>) -> Vec<(A, u16)> {
    let mut sorted: Vec<_> = routes.collect();
    sorted.sort();
    let mut ranges = vec![(A::ZERO, 0)];
    let mut open: Vec<(A, u16)> = Vec::new();
    let close = |open: &mut Vec<(A, u16)>, ranges: &mut Vec<(A, u16)>| {
        let (last, _) = open.pop().unwrap();
        let outer = open.last().map_or(0, |&(_, answer)| answer);
        if last.after() > last {
            ranges.push((last.after(), outer));
        }
    };
    for (prefix, hop) in sorted {
        while open.last().is_some_and(|&(last, _)| last < prefix.first()) {
            close(&mut open, &mut ranges);
        }
        ranges.push((prefix.first(), hop.get()));
        open.push((prefix.last(), hop.get()));
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

/// The answer by ranges.
pub fn answer<A: Address>(ranges: &[(A, u16)], address: A) -> u16 {
    ranges[ranges.partition_point(|&(first, _)| first <= address) - 1].1
}

/// Addresses at and around the bounds of prefixes.
pub fn bounds<A: Random>(prefixes: impl Iterator<Item = Prefix<A>>) -> Vec<A> {
    prefixes
        .flat_map(|prefix| {
            let (first, last) = (prefix.first(), prefix.last());
            [first.before(), first, last, last.after()]
        })
        .collect()
}
