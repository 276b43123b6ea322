//! Medians, quartiles, and the interval of a median that order statistics give exactly, whatever the
//! distribution of the noise.

/// Medians are never quoted with less than this coverage.
const COVERAGE: f64 = 0.95;

/// Which order statistics (counted from 1) bound the median, and how often they do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranks {
    pub lower: usize,
    pub upper: usize,
    /// Exact, from the binomial distribution.
    pub coverage: f64,
}

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub lower: f64,
    pub upper: f64,
    /// Exact coverage, 0 to 1.
    pub confidence: f64,
}

/// The values of a box plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    pub min: f64,
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
    pub max: f64,
}

impl Quartiles {
    /// Nothing for no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self {
            min: *sorted.first()?,
            lower: interpolate(&sorted, 0.25)?,
            median: interpolate(&sorted, 0.5)?,
            upper: interpolate(&sorted, 0.75)?,
            max: *sorted.last()?,
        })
    }
}

/// The median; the mean of the middle two for an even number of values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile by linear interpolation between order statistics (Hyndman and Fan's definition 7).
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    interpolate(&sorted(values), q)
}

/// The narrowest symmetric pair of order statistics that covers the median in at least 95 % of
/// samples. None below six values, where even the extremes do not reach it.
pub fn median_ranks(n: usize) -> Option<Ranks> {
    ranks_covering(n, COVERAGE)
}

/// The narrowest symmetric pair of order statistics that covers the median in at least this share of samples:
/// P(X(k) <= m <= X(n+1-k)) = 1 - 2 P(Binomial(n, 1/2) < k).
pub(crate) fn ranks_covering(n: usize, least: f64) -> Option<Ranks> {
    let mut ranks = None;
    let mut below = 0.0;
    for k in 1..=n / 2 {
        below += binomial_half(n, k - 1);
        let coverage = 1.0 - 2.0 * below;
        if coverage < least {
            break;
        }
        ranks = Some(Ranks {
            lower: k,
            upper: n + 1 - k,
            coverage,
        });
    }
    ranks
}

/// The exact interval of the median of these values.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    bounds(values, median_ranks(values.len())?)
}

/// The values of these ranks; none where there are fewer.
pub(crate) fn bounds(values: &[f64], ranks: Ranks) -> Option<Interval> {
    let sorted = sorted(values);
    Some(Interval {
        lower: *sorted.get(ranks.lower.checked_sub(1)?)?,
        upper: *sorted.get(ranks.upper.checked_sub(1)?)?,
        confidence: ranks.coverage,
    })
}

/// P(Binomial(n, 1/2) = k), by logarithms so that n is not limited by the range of a double.
fn binomial_half(n: usize, k: usize) -> f64 {
    let choose: f64 = (1..=k).map(|i| (float(n - k + i) / float(i)).ln()).sum();
    (choose - float(n) * std::f64::consts::LN_2).exp()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

fn interpolate(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * float(last);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the floor of a place between 0 and the last index"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let share = place - float(below);
    // The difference of two infinities is not a number.
    if share == 0.0 || sorted[below] == sorted[above] {
        return Some(sorted[below]);
    }
    Some(sorted[below] + (sorted[above] - sorted[below]) * share)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of blocks, far below 2^53"
)]
pub(crate) fn float(value: usize) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_ranks(n: usize, lower: usize, upper: usize, coverage: f64) {
        let ranks = median_ranks(n).unwrap();
        assert_eq!((ranks.lower, ranks.upper), (lower, upper), "n={n}");
        assert!(
            (ranks.coverage - coverage).abs() < 5e-5,
            "n={n}: {}",
            ranks.coverage
        );
    }

    /// Conover, Practical Nonparametric Statistics, and every table since.
    #[test]
    fn ranks_agree_with_the_published_tables() {
        assert_ranks(6, 1, 6, 0.9688);
        assert_ranks(8, 1, 8, 0.9922);
        assert_ranks(9, 2, 8, 0.9609);
        assert_ranks(10, 2, 9, 0.9785);
        assert_ranks(15, 4, 12, 0.9648);
        assert_ranks(20, 6, 15, 0.9586);
        assert_ranks(25, 8, 18, 0.9567);
    }

    #[test]
    fn five_values_give_no_interval() {
        assert_eq!(median_ranks(5), None);
        assert_eq!(median_ranks(0), None);
        assert_eq!(median_interval(&[1.0; 5]), None);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        let quartiles = Quartiles::of(&[4.0, 1.0, 3.0, 2.0, 5.0, 6.0]).unwrap();
        assert_eq!((quartiles.min, quartiles.max), (1.0, 6.0));
        assert_eq!(
            (quartiles.lower, quartiles.median, quartiles.upper),
            (2.25, 3.5, 4.75)
        );
    }

    proptest! {
        #[test]
        fn coverage_is_at_least_promised_and_the_next_pair_falls_short(n in 6usize..2000) {
            let ranks = median_ranks(n).unwrap();
            prop_assert!(ranks.coverage >= COVERAGE && ranks.coverage < 1.0);
            prop_assert_eq!(ranks.lower + ranks.upper, n + 1);
            let narrower = ranks.coverage - 2.0 * binomial_half(n, ranks.lower);
            prop_assert!(narrower < COVERAGE || ranks.lower == n / 2);
        }

        #[test]
        fn the_interval_holds_the_median(values in proptest::collection::vec(-1e9f64..1e9, 6..100)) {
            let interval = median_interval(&values).unwrap();
            let middle = median(&values).unwrap();
            prop_assert!(interval.lower <= middle && middle <= interval.upper);
        }

        #[test]
        fn an_interval_moves_with_its_values(values in proptest::collection::vec(-1e3f64..1e3, 6..60)) {
            let moved: Vec<f64> = values.iter().map(|value| value + 7.0).collect();
            let (a, b) = (median_interval(&values).unwrap(), median_interval(&moved).unwrap());
            prop_assert!((b.lower - a.lower - 7.0).abs() < 1e-9);
            prop_assert!((b.upper - a.upper - 7.0).abs() < 1e-9);
        }
    }
}
