//! Whether successive values depend on each other.

/// A row that drifts claims only effects of more than this many robust standard deviations of its pairs.
pub const DRIFT_DEVIATIONS: f64 = 6.0;
/// The one-sided 0.5 % point of the standard normal distribution: one row in two hundred is called drifting by chance.
const CRITICAL: f64 = 2.576;
/// Fewer values have no test.
const MIN_VALUES: usize = 8;

/// Whether the values, in the order in which they were measured, drift: the rank version of von Neumann's ratio
/// (Bartels, Journal of the American Statistical Association 77, 1982), one-sided at 0.5 % by its normal approximation.
/// Equal values have their mean rank.
#[must_use]
pub fn is_drifting(values: &[f64]) -> bool {
    let count = values.len();
    if count < MIN_VALUES {
        return false;
    }
    let ranks = mean_ranks(values);
    let n = crate::order::float(count);
    let mean = f64::midpoint(n, 1.0);
    let spread: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    if spread == 0.0 {
        return false;
    }
    let steps: f64 = ranks
        .windows(2)
        .map(|pair| (pair[0] - pair[1]).powi(2))
        .sum();
    let variance =
        4.0 * (n - 2.0) * (5.0 * n * n - 2.0 * n - 9.0) / (5.0 * n * (n + 1.0) * (n - 1.0).powi(2));
    steps / spread < 2.0 - CRITICAL * variance.sqrt()
}

fn mean_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let value = values[order[first]];
        let equal = order[first..].iter().take_while(|&&at| values[at] == value);
        // NaN does not equal itself.
        let next = first + equal.count().max(1);
        let rank = f64::midpoint(crate::order::float(first + 1), crate::order::float(next));
        for &at in &order[first..next] {
            ranks[at] = rank;
        }
        first = next;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_values_drift() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(is_drifting(&rising));
    }

    #[test]
    fn alternating_values_do_not_drift() {
        let alternating: Vec<f64> = (0..20).map(|at| f64::from(at % 2)).collect();
        assert!(!is_drifting(&alternating));
        assert!(!is_drifting(&[3.0; 20]));
        assert!(!is_drifting(&[1.0, 2.0, 3.0]));
    }

    /// The 0.5 % point of ten values is a ratio of 0.50 by the normal approximation: 41 over a spread of 82.5.
    #[test]
    fn critical_value_of_ten() {
        // Squared steps that sum to 28 and to 98.
        let below = [1.0, 2.0, 4.0, 3.0, 6.0, 8.0, 10.0, 9.0, 7.0, 5.0];
        assert!(is_drifting(&below));
        let above = [1.0, 6.0, 4.0, 3.0, 8.0, 10.0, 9.0, 7.0, 2.0, 5.0];
        assert!(!is_drifting(&above));
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(mean_ranks(&[5.0, 1.0, 5.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
    }
}
