//! Exact integer sums, and the statistics computed from them.

/// Count, extremes and sums of lengths in bytes, or of other small numbers.
///
/// The sum of squares is exact up to 2^64, which is about 4 × 10^9 packets of 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub count: u64,
    pub min: u32,
    pub max: u32,
    pub sum: u64,
    pub squares: u64,
}

/// Count, extremes and sums of times in nanoseconds. The square of a gap above 4.3 s exceeds 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub count: u64,
    pub min: u64,
    pub max: u64,
    pub sum: u64,
    pub squares: u128,
}

impl Lengths {
    #[inline]
    pub fn add(&mut self, value: u32) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u64::from(value);
        self.squares = self
            .squares
            .saturating_add(u64::from(value) * u64::from(value));
    }

    /// The sums of both.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            min: least((self.count, self.min), (other.count, other.min)),
            max: self.max.max(other.max),
            sum: self.sum + other.sum,
            squares: self.squares.saturating_add(other.squares),
        }
    }

    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then(|| self.min.into())
    }

    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then(|| self.max.into())
    }

    pub fn mean(&self) -> Option<f64> {
        mean(self.count, self.sum)
    }

    /// The sample standard deviation; `None` for fewer than two values.
    pub fn std(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    pub fn variance(&self) -> Option<f64> {
        variance(self.count, self.sum, self.squares.into())
    }
}

impl Times {
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        let square = u128::from(value) * u128::from(value);
        self.squares = self.squares.saturating_add(square);
    }

    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    pub fn mean(&self) -> Option<f64> {
        mean(self.count, self.sum)
    }

    /// The sample standard deviation; `None` for fewer than two values.
    pub fn std(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    pub fn variance(&self) -> Option<f64> {
        variance(self.count, self.sum, self.squares)
    }
}

fn least(mine: (u64, u32), other: (u64, u32)) -> u32 {
    match (mine.0, other.0) {
        (0, _) => other.1,
        (_, 0) => mine.1,
        _ => mine.1.min(other.1),
    }
}

fn mean(count: u64, sum: u64) -> Option<f64> {
    (count > 0).then(|| float(sum.into()) / float(count.into()))
}

/// (n * squares - sum^2) / (n * (n - 1)). All steps before the division are exact if they fit 128 bits.
fn variance(count: u64, sum: u64, squares: u128) -> Option<f64> {
    if count < 2 {
        return None;
    }
    let (n, sum) = (u128::from(count), u128::from(sum));
    let pairs = float(n) * float(n - 1);
    Some(match squares.checked_mul(n) {
        Some(all) => float(all.saturating_sub(sum * sum)) / pairs,
        None => {
            let mean = float(sum) / float(n);
            ((float(squares) - float(sum) * mean) / float(n - 1)).max(0.0)
        }
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "statistics are given in double precision"
)]
fn float(value: u128) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_known_sample() {
        let mut lengths = Lengths::default();
        let mut times = Times::default();
        for value in [2, 4, 4, 4, 5, 5, 7, 9] {
            lengths.add(value);
            times.add(value.into());
        }
        assert_eq!((lengths.min(), lengths.max()), (Some(2), Some(9)));
        assert_eq!(lengths.mean(), Some(5.0));
        assert_eq!(lengths.variance(), Some(32.0 / 7.0));
        assert_eq!(times.variance(), lengths.variance());
    }

    #[test]
    fn nothing_is_known_of_nothing_and_no_spread_of_one() {
        let mut times = Times::default();
        assert_eq!((times.min(), times.mean(), times.std()), (None, None, None));
        times.add(7);
        assert_eq!(
            (times.min(), times.mean(), times.std()),
            (Some(7), Some(7.0), None)
        );
    }

    #[test]
    fn the_spread_of_long_gaps_is_exact() {
        // Two gaps of about a day that differ by 2 ns: double precision loses the difference, integers do not.
        let mut times = Times::default();
        let day = 86_400_000_000_000;
        times.add(day);
        times.add(day + 2);
        assert_eq!(times.variance(), Some(2.0));
    }

    #[test]
    fn gaps_beyond_any_clock_do_not_overflow() {
        let mut times = Times::default();
        for _ in 0..4 {
            times.add(u64::MAX);
        }
        assert!(times.std().is_some_and(f64::is_finite));
    }

    #[test]
    fn two_samples_make_one() {
        let mut parts = [Lengths::default(); 2];
        let mut whole = Lengths::default();
        for (index, value) in [9, 3, 5].into_iter().enumerate() {
            parts[index % 2].add(value);
            whole.add(value);
        }
        assert_eq!(parts[0].and(&parts[1]), whole);
        assert_eq!(whole.and(&Lengths::default()), whole);
        assert_eq!(Lengths::default().and(&whole), whole);
    }
}
