//! The Wilcoxon signed-rank test (Biometrics Bulletin 1, 1945): an opinion beside the interval, never
//! the ground of a claim.

use crate::order::float;

/// Up to this many differences every sign pattern is counted; above, the normal approximation is
/// good to three digits.
const MAX_EXACT_PAIRS: usize = 50;

/// Two-sided p that the differences are symmetric about 0; nothing when all of them are 0.
///
/// Zeros are left out and ties share their mean rank, as Wilcoxon did. Exact, ties included, up to
/// 50 differences; above, normal with corrections for ties and continuity.
pub fn signed_rank_p(differences: &[f64]) -> Option<f64> {
    let mut nonzero: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|value| *value != 0.0)
        .collect();
    nonzero.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let doubled = doubled_ranks(&nonzero);
    let positive: usize = nonzero
        .iter()
        .zip(&doubled)
        .filter(|(value, _)| **value > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    match nonzero.len() {
        0 => None,
        1..=MAX_EXACT_PAIRS => Some(exact_p(&doubled, positive)),
        _ => Some(normal_p(&doubled, positive)),
    }
}

/// Twice the mid-rank of each value by size, so that shared ranks stay whole numbers.
fn doubled_ranks(sorted: &[f64]) -> Vec<usize> {
    sorted
        .chunk_by(|a, b| a.abs() == b.abs())
        .scan(0, |before, tie| {
            let shared = 2 * *before + tie.len() + 1;
            *before += tie.len();
            Some(std::iter::repeat_n(shared, tie.len()))
        })
        .flatten()
        .collect()
}

/// Counts the sign patterns that are at least as lopsided.
fn exact_p(doubled: &[usize], positive: usize) -> f64 {
    let total: usize = doubled.iter().sum();
    let mut share = vec![0.0; total + 1];
    share[0] = 1.0;
    for &rank in doubled {
        for sum in (0..=total).rev() {
            let with = if sum >= rank { share[sum - rank] } else { 0.0 };
            share[sum] = f64::midpoint(share[sum], with);
        }
    }
    let smaller = positive.min(total - positive);
    let tail: f64 = share[..=smaller].iter().sum();
    (2.0 * tail).min(1.0)
}

fn normal_p(doubled: &[usize], positive: usize) -> f64 {
    let total: usize = doubled.iter().sum();
    // The variance of a sum of independent signs, ties included: sum of rank^2 / 4.
    let variance: f64 = doubled.iter().map(|&rank| float(rank).powi(2) / 16.0).sum();
    let off = (float(positive) / 2.0 - float(total) / 4.0).abs();
    let z = (off - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// The complementary error function for x >= 0, to 1.5e-7 (Abramowitz and Stegun 7.1.26).
fn erfc(x: f64) -> f64 {
    const TERMS: [f64; 5] = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    TERMS.iter().fold(0.0, |sum, term| (sum + term) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_p(differences: &[f64], expected: f64) {
        let p = signed_rank_p(differences).unwrap();
        assert!((p - expected).abs() < 1e-6, "{p} for {differences:?}");
    }

    /// Darwin's maize, cross-fertilised less self-fertilised (Cox and Snell; p as in SciPy's manual).
    #[test]
    fn darwins_maize() {
        let eighths = [
            6.0, 8.0, 14.0, 16.0, 23.0, 24.0, 28.0, 29.0, 41.0, -48.0, 49.0, 56.0, 60.0, -67.0,
            75.0,
        ];
        assert_p(&eighths, 0.041_259_765_625);
    }

    /// Hollander and Wolfe's depression scores: V = 40 of 45, one-sided p 0.01953.
    #[test]
    #[expect(clippy::approx_constant, reason = "a score of 3.14, not a circle")]
    fn depression_scores() {
        let first = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let second = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let differences: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a - b).collect();
        assert_p(&differences, 0.039_062_5);
    }

    #[test]
    fn all_on_one_side_is_the_smallest_p() {
        assert_p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2.0 / 64.0);
        assert_eq!(signed_rank_p(&[0.0, 0.0]), None);
    }

    /// |1| three times shares rank 2: of 8 patterns, 2 are as lopsided as all three positive.
    #[test]
    fn ties_are_counted_exactly() {
        assert_p(&[1.0, 1.0, 1.0], 0.25);
        assert_p(&[1.0, 1.0, -1.0], 1.0);
    }

    #[test]
    fn erfc_at_known_points() {
        for (x, known) in [(0.0, 1.0), (1.0, 0.157_299_207), (2.0, 0.004_677_735)] {
            assert!((erfc(x) - known).abs() < 2e-7);
        }
    }

    proptest! {
        #[test]
        fn the_normal_form_meets_the_exact_one(values in proptest::collection::vec(-100i32..100, 40..50)) {
            let mut values: Vec<f64> = values.into_iter().map(f64::from).filter(|v| *v != 0.0).collect();
            values.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
            let ranks = doubled_ranks(&values);
            let positive = values.iter().zip(&ranks).filter(|(v, _)| **v > 0.0).map(|(_, r)| r).sum();
            prop_assert!((exact_p(&ranks, positive) - normal_p(&ranks, positive)).abs() < 0.01);
        }

        #[test]
        fn turning_every_sign_changes_nothing(values in proptest::collection::vec(-100i32..100, 1..40)) {
            let there: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let back: Vec<f64> = there.iter().map(|value| -value).collect();
            prop_assert_eq!(signed_rank_p(&there), signed_rank_p(&back));
        }
    }
}
