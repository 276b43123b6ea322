//! Packets that a build is judged by: half are drawn from the rules, half come from anywhere.

use crate::address::Address;
use crate::region::{Region, lane};
use crate::rule::Key;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<A: Address> {
    pub(crate) key: Key<A>,
    pub(crate) source: A,
    pub(crate) destination: A,
    /// Index of the region that it was drawn from, or the highest number.
    pub(crate) rank: u32,
}

/// Numbers that look random: xorshift64*.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    /// In a range of lane values, both ends included.
    pub(crate) fn between(&mut self, low: u16, high: u16) -> u16 {
        low + self.below(u64::from(high - low) + 1) as u16
    }

    /// Any address.
    pub(crate) fn address<A: Address>(&mut self) -> A {
        A::narrow(u128::from(self.next()) << 64 | u128::from(self.next() >> 16) | u128::from(self.next()) << 48)
    }
}

/// Packets of both sorts.
#[derive(Debug)]
pub(crate) struct Samples<A: Address> {
    /// Each drawn from a rule.
    pub(crate) within: Vec<Sample<A>>,
    /// From anywhere: of most lists they match no rule, or the last.
    pub(crate) foreign: Vec<Sample<A>>,
}

/// `count` packets of each sort, the same for the same regions.
pub(crate) fn draw<A: Address>(regions: &[Region<A>], count: usize) -> Samples<A> {
    let mut random = Random::new(1);
    let mut one_within = |_| {
        let index = random.below(regions.len() as u64) as usize;
        within(&regions[index], index as u32, &mut random)
    };
    let within = (0..count).map(&mut one_within).collect();
    let foreign = (0..count).map(|_| anywhere(&mut random)).collect();
    Samples { within, foreign }
}

fn within<A: Address>(region: &Region<A>, rank: u32, random: &mut Random) -> Sample<A> {
    let mut value =
        |at| random.between(lane(region.low.as_ref(), at), lane(region.high.as_ref(), at));
    let mut address = |first: usize| {
        let lanes = (first..first + A::LANES).rev();
        A::narrow(lanes.fold(0u128, |wide, at| wide << 16 | u128::from(value(at))))
    };
    let (source, destination) = (address(0), address(A::LANES));
    let ports = (value(2 * A::LANES), value(2 * A::LANES + 1));
    let protocol = value(A::ALL_LANES - 1) as u8;
    let key = Key::new(source, destination, ports, protocol);
    Sample {
        key,
        source,
        destination,
        rank,
    }
}

fn anywhere<A: Address>(random: &mut Random) -> Sample<A> {
    let (source, destination) = (random.address(), random.address());
    let ports = (random.next() as u16, random.next() as u16);
    let protocol = if random.below(2) == 0 { 6 } else { 17 };
    let key = Key::new(source, destination, ports, protocol);
    Sample {
        key,
        source,
        destination,
        rank: u32::MAX,
    }
}
