//! Whether two arms were disturbed as often as each other.

/// Shares of flagged trials this many points apart compare disturbed with undisturbed.
pub const FLAG_GAP_POINTS: f64 = 10.0;
/// The level of significance of a gap.
const SIGNIFICANCE_LEVEL: f64 = 0.05;

/// An arm's flagged trials, of all its trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub flagged: usize,
    pub trials: usize,
}

impl Flags {
    fn percent(self) -> f64 {
        100.0 * crate::order::float(self.flagged) / crate::order::float(self.trials.max(1))
    }

    /// How many percentage points apart two arms' shares of flagged trials are, where that makes a
    /// comparison of them unreliable: more than [`FLAG_GAP_POINTS`], and more than chance does to
    /// trials that are flagged whatever their arm is.
    pub fn gap(self, other: Self) -> Option<f64> {
        let gap = (self.percent() - other.percent()).abs();
        (gap > FLAG_GAP_POINTS && fisher_p(self, other) < SIGNIFICANCE_LEVEL).then_some(gap)
    }
}

/// Fisher's exact test, two-sided: the probability of a split of the flagged trials between the
/// arms that is at most as likely as this one, if every trial is equally likely to be flagged.
fn fisher_p(one: Flags, other: Flags) -> f64 {
    let flagged = one.flagged + other.flagged;
    let least = flagged.saturating_sub(other.trials);
    let most = flagged.min(one.trials);
    let ln_weight =
        |of_one: usize| ln_choose(one.trials, of_one) + ln_choose(other.trials, flagged - of_one);
    let observed = ln_weight(one.flagged);
    let weights: Vec<f64> = (least..=most).map(ln_weight).collect();
    // Relative to the observed split: none is so much likelier that this overflows.
    let relative = |weight: &f64| (weight - observed).exp();
    let all: f64 = weights.iter().map(relative).sum();
    let as_rare: f64 = weights
        .iter()
        .map(relative)
        .filter(|r| *r <= 1.0 + 1e-9)
        .sum();
    as_rare / all
}

fn ln_choose(n: usize, k: usize) -> f64 {
    let terms = (1..=k).map(|i| (crate::order::float(n - k + i) / crate::order::float(i)).ln());
    terms.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(flagged: usize, trials: usize) -> Flags {
        Flags { flagged, trials }
    }

    #[test]
    fn the_test_is_exact() {
        // Fisher's tea: 3 of 4 against 1 of 4.
        assert!((fisher_p(flags(3, 4), flags(1, 4)) - 34.0 / 70.0).abs() < 1e-12);
        assert!((fisher_p(flags(4, 4), flags(0, 4)) - 2.0 / 70.0).abs() < 1e-12);
        assert!((fisher_p(flags(0, 9), flags(0, 30)) - 1.0).abs() < 1e-12);
        assert!((fisher_p(flags(0, 0), flags(3, 30)) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_gap_counts_when_it_is_wide_and_no_chance() {
        assert_eq!(
            flags(12, 24).gap(flags(6, 72)),
            Some(50.0 - 100.0 * 6.0 / 72.0)
        );
        assert_eq!(
            flags(6, 72).gap(flags(12, 24)),
            flags(12, 24).gap(flags(6, 72))
        );
        // Wide, but three trials of twenty.
        assert_eq!(flags(3, 20).gap(flags(0, 20)), None);
        // No chance, but narrow.
        assert_eq!(flags(90, 1000).gap(flags(0, 1000)), None);
        assert_eq!(flags(0, 0).gap(flags(0, 0)), None);
    }
}
