//! Reproducible random numbers: a seed gives the same sequence on every machine and in every version.
//!
//! Schedules, generated tables and traffic are named by their seed, so a change of an algorithm here changes
//! what records and tests mean. Nothing here is for cryptography.

/// The `SplitMix64` generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 128 random bits, the high half first.
    pub fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A number from 0 to `end - 1`, by the remainder: the bias is at most `end / 2^64`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// An index of a slice of `len` items.
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.bits53() / UNIT
    }

    /// A uniform number in (0, 1), of which the logarithm is finite.
    pub fn open_unit(&mut self) -> f64 {
        (self.bits53() + 0.5) / UNIT
    }

    /// A standard normal deviate, by the method of Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.open_unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.open_unit()).cos()
    }

    /// Orders the items at random, by the method of Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a double holds 53 bits")]
    fn bits53(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64
    }
}

/// The number of values of [`SplitMix64::bits53`], 2^53.
const UNIT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_the_reference_one() {
        // The output of the authors' C program for this seed.
        let mut random = SplitMix64::new(1_234_567);
        let known = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for number in known {
            assert_eq!(random.next_u64(), number);
        }
    }

    #[test]
    fn numbers_derive_from_the_sequence() {
        let [first, second] = [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973];
        let random = || SplitMix64::new(1_234_567);
        assert_eq!(
            random().next_u128(),
            u128::from(first) << 64 | u128::from(second)
        );
        assert_eq!(random().below(1000), first % 1000);
        assert_eq!(random().index(1000), 317);
        let unit = random().unit();
        assert_eq!(unit, (first >> 11) as f64 / 2_f64.powi(53));
        assert_eq!(random().open_unit(), unit + 0.5_f64.powi(54));
        let mut items = [0, 1, 2];
        random().shuffle(&mut items);
        // Swaps 2 with first % 3 = 0, then 1 with second % 2 = 1.
        assert_eq!((first % 3, second % 2), (0, 1));
        assert_eq!(items, [2, 1, 0]);
    }

    #[test]
    fn normal_deviates_have_unit_variance() {
        let mut random = SplitMix64::new(1);
        let deviates: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        let mean = deviates.iter().sum::<f64>() / 1e4;
        let variance = deviates.iter().map(|one| one * one).sum::<f64>() / 1e4;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((0.95..1.05).contains(&variance), "{variance}");
    }
}
