//! Reproducible random numbers, for traffic, tables and checks.

use splitmix::SplitMix64;

/// Numbers that are the same for the same seed: those of [`SplitMix64`], but a range takes them by a multiplication
/// instead of the remainder.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 32 random bits.
    pub fn narrow(&mut self) -> u32 {
        u32::try_from(self.bits() >> 32).unwrap_or(0)
    }

    /// 128 random bits.
    pub fn wide(&mut self) -> u128 {
        self.0.next_u128()
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.bits()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A place in a list of so many things, which are not none.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// 0..1
    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// Any order is as likely as any other.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.index(at + 1));
        }
    }
}
