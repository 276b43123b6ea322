//! Reproducible random numbers, for traffic, tables and checks.

/// Numbers that are the same for the same seed: `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// 32 random bits.
    pub fn narrow(&mut self) -> u32 {
        u32::try_from(self.bits() >> 32).unwrap_or(0)
    }

    /// 128 random bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
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
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Any order is as likely as any other.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.index(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix() {
        // The reference implementation's first numbers of seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }
}
