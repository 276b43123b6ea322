//! The effect of one arm against another over paired blocks, with its interval and the A/A band.

use serde::{Deserialize, Serialize};
use splitmix::SplitMix64;

use crate::claim::{ClaimRule, band_ranks, interval_ranks};
use crate::comparison::Block;
use crate::order::{Interval, bounds, median};

/// How two arms are compared within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A/B, for values that are never 0.
    Ratio,
    /// A-B, where values can be 0.
    Difference,
}

/// The side of equality on which an effect lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Above,
    Below,
}

/// The estimate of a set of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Blocks.
    pub n: usize,
    pub arm_median: f64,
    pub baseline_median: f64,
    /// Median of the paired effects: a ratio, or a difference in the metric's unit. Infinite where most of the trials of
    /// one arm failed.
    pub effect: f64,
    /// Exact interval of `effect`, widened by the resolution of the values; none for fewer than six blocks.
    pub interval: Option<Interval>,
    /// A/A band, mirrored about equality; none for fewer than six A/A pairs.
    pub aa: Option<Interval>,
    pairs: Pairs,
    rows: usize,
}

/// Paired effects on the scale where equality is 0 and effects add.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pairs {
    /// In the order of the blocks.
    pub(crate) effects: Vec<f64>,
    /// The baseline's first run against its second.
    pub(crate) aa: Vec<f64>,
    /// How far the interval extends at each end for the resolution of the values.
    resolution: f64,
}

/// A condition that an effect has to meet to be claimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Condition {
    /// The interval stays away from equality by this share of its width.
    Margin { share: f64 },
    /// The median lies outside the A/A band.
    Band,
    /// Both halves of the experiment lie on the same side of equality.
    Halves,
}

impl Effect {
    /// On the scale where equality is 0 and effects add: logarithms for ratios.
    ///
    /// A value that is not above 0, as what remains of a small one beside a larger that was taken
    /// off, is less than any that is: order statistics need not know how much less.
    pub(crate) fn of(self, arm: f64, baseline: f64) -> f64 {
        match self {
            Self::Ratio => match (arm > 0.0, baseline > 0.0) {
                (true, true) => (arm / baseline).ln(),
                (false, true) => f64::NEG_INFINITY,
                (true, false) => f64::INFINITY,
                (false, false) => 0.0,
            },
            Self::Difference => arm - baseline,
        }
    }

    /// The effect of two arms that are equal: a ratio of 1, or a difference of 0.
    #[must_use]
    pub fn equality(self) -> f64 {
        self.unscale(0.0)
    }

    fn unscale(self, effect: f64) -> f64 {
        match self {
            Self::Ratio => effect.exp(),
            Self::Difference => effect,
        }
    }

    fn unscale_interval(self, interval: Interval) -> Interval {
        Interval {
            lower: self.unscale(interval.lower),
            upper: self.unscale(interval.upper),
            confidence: interval.confidence,
        }
    }

    /// How far from equality, as a reader would say it.
    fn size(self, effect: f64) -> f64 {
        match self {
            Self::Ratio => effect.exp_m1(),
            Self::Difference => effect,
        }
    }
}

impl Estimate {
    /// The estimate of blocks whose values are known to within `resolution` of themselves. `rows` are those of the
    /// report, see [`ClaimRule`].
    pub(crate) fn new(
        effect: Effect,
        blocks: &[Block],
        pairs: &Pairs,
        rows: usize,
    ) -> Option<Self> {
        let arms: Vec<f64> = blocks.iter().filter_map(|block| block.arm).collect();
        let baselines: Vec<f64> = blocks.iter().filter_map(|block| block.baseline).collect();
        let middle = median(&pairs.effects)?;
        Some(Self {
            n: pairs.effects.len(),
            arm_median: median(&arms)?,
            baseline_median: median(&baselines)?,
            effect: effect.unscale(middle),
            interval: pairs.interval().map(|at| effect.unscale_interval(at)),
            aa: pairs.band().map(|at| effect.unscale_interval(at)),
            pairs: pairs.clone(),
            rows,
        })
    }

    /// The smallest true effect that a repetition with this many blocks of this noise would claim in 80 % of cases: a
    /// share of the baseline for ratios (0.04 is 4 %), in the metric's unit for differences. None where nothing could be
    /// claimed.
    #[must_use]
    pub fn smallest_detectable(&self, effect: Effect) -> Option<f64> {
        let smallest = self.pairs.smallest_detectable(self.rows)?;
        Some(effect.size(smallest))
    }

    /// On which side of equality the median effect lies.
    pub(crate) fn side(&self, effect: Effect) -> Option<Direction> {
        let equal = effect.unscale(0.0);
        if self.effect > equal {
            Some(Direction::Above)
        } else if self.effect < equal {
            Some(Direction::Below)
        } else {
            None
        }
    }
}

impl Pairs {
    /// The effects of blocks in their order. A trial that failed is worse than any that did not: its effect is infinite,
    /// on the side that is `worse` for the arm. A block in which both failed has none.
    ///
    /// `offset` was taken off every value, which is known to within `resolution` of itself and `offset` together.
    pub(crate) fn new(
        effect: Effect,
        worse: Direction,
        blocks: &[Block],
        (resolution, offset): (f64, f64),
    ) -> Self {
        let of_block = |block: &Block| match (block.arm, block.baseline) {
            (Some(arm), Some(baseline)) => Some(effect.of(arm, baseline)),
            (None, Some(_)) => Some(worse.infinity()),
            (Some(_), None) => Some(-worse.infinity()),
            (None, None) => None,
        };
        let aa = blocks.iter().filter_map(|block| block.aa);
        let typical = |of: fn(&Block) -> Option<f64>| {
            let values = blocks.iter().filter_map(of);
            let whole: Vec<f64> = values.map(|value| (value + offset).abs()).collect();
            median(&whole).unwrap_or(0.0)
        };
        Self {
            effects: blocks.iter().filter_map(of_block).collect(),
            aa: aa.map(|(first, second)| effect.of(first, second)).collect(),
            resolution: match effect {
                Effect::Ratio => 2.0 * resolution.ln_1p(),
                Effect::Difference => {
                    resolution * (typical(|block| block.arm) + typical(|block| block.baseline))
                }
            },
        }
    }

    fn interval(&self) -> Option<Interval> {
        let interval = bounds(&self.effects, interval_ranks(self.effects.len())?)?;
        Some(Interval {
            lower: interval.lower - self.resolution,
            upper: interval.upper + self.resolution,
            ..interval
        })
    }

    /// Mirrored by its farther end, so that it never forgives more on one side.
    fn band(&self) -> Option<Interval> {
        let interval = bounds(&self.aa, band_ranks(self.aa.len())?)?;
        let farther = interval.lower.abs().max(interval.upper.abs());
        Some(Interval {
            lower: -farther,
            upper: farther,
            ..interval
        })
    }

    /// The side of equality that these pairs claim in a report of `rows` rows: the interval stays away from equality by
    /// its margin, the median lies outside the A/A band, and both halves of the experiment lie on that side.
    pub(crate) fn direction(&self, rows: usize) -> Option<Direction> {
        [Direction::Above, Direction::Below]
            .into_iter()
            .find(|direction| self.shortfall(*direction, rows).is_some_and(|by| by < 0.0))
    }

    /// How much farther on this side the effect would have to lie to be claimed; negative where it is.
    fn shortfall(&self, direction: Direction, rows: usize) -> Option<f64> {
        let conditions = self.conditions(direction, rows)?;
        conditions
            .into_iter()
            .map(|(_, needed)| needed)
            .reduce(f64::max)
    }

    /// The conditions of a claim on this side that do not hold.
    pub(crate) fn unmet(&self, direction: Direction, rows: usize) -> Vec<Condition> {
        let conditions = self.conditions(direction, rows).into_iter().flatten();
        conditions
            .filter(|(_, needed)| *needed >= 0.0)
            .map(|(condition, _)| condition)
            .collect()
    }

    /// The conditions of a claim on this side, each with the distance by which the effect misses it; negative where the
    /// condition holds.
    fn conditions(&self, direction: Direction, rows: usize) -> Option<[(Condition, f64); 3]> {
        let rule = ClaimRule::new(self.effects.len(), rows)?;
        let (interval, band) = (self.interval()?, self.band()?);
        let (first, second) = self.effects.split_at(self.effects.len() / 2);
        let middles = [median(&self.effects)?, median(first)?, median(second)?];
        let [middle, first, second] = middles.map(|middle| direction.turn(middle));
        let near = match direction {
            Direction::Above => interval.lower,
            Direction::Below => -interval.upper,
        };
        let margin = match rule.margin {
            // An end that lies at infinity has no share of the width.
            0.0 => 0.0,
            margin => margin * (interval.upper - interval.lower),
        };
        Some([
            (Condition::Margin { share: rule.margin }, margin - near),
            (Condition::Band, band.upper - middle),
            (Condition::Halves, (-first).max(-second)),
        ])
    }

    /// The median distance from the median, scaled to the standard deviation of normal noise.
    pub(crate) fn robust_deviation(&self) -> Option<f64> {
        const NORMAL: f64 = 1.4826;
        let middle = median(&self.effects)?;
        let distances: Vec<f64> = self
            .effects
            .iter()
            .map(|effect| (effect - middle).abs())
            .collect();
        Some(NORMAL * median(&distances)?)
    }

    /// By resampling the pairs, moved to equality, and the A/A pairs: the shift that 80 % of the resamples need to claim.
    fn smallest_detectable(&self, rows: usize) -> Option<f64> {
        const RESAMPLES: usize = 400;
        const SHARE: f64 = 0.8;
        let middle = median(&self.effects)?;
        self.interval()?;
        self.band()?;
        if !middle.is_finite() {
            return None;
        }
        // A fixed seed: a record always has the same report.
        let mut random = SplitMix64::new(1);
        let mut needed = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let pairs = Self {
                effects: resample(&mut random, &self.effects, middle),
                aa: resample(&mut random, &self.aa, 0.0),
                resolution: self.resolution,
            };
            needed.push(pairs.shortfall(Direction::Above, rows)?);
        }
        let smallest = crate::order::quantile(&needed, SHARE)?;
        smallest.is_finite().then(|| smallest.max(0.0))
    }
}

impl Direction {
    fn infinity(self) -> f64 {
        match self {
            Self::Above => f64::INFINITY,
            Self::Below => f64::NEG_INFINITY,
        }
    }

    /// The effect, positive where it lies on this side.
    pub(crate) fn turn(self, effect: f64) -> f64 {
        match self {
            Self::Above => effect,
            Self::Below => -effect,
        }
    }
}

/// As many of the values, drawn with replacement, less `shift`.
fn resample(random: &mut SplitMix64, values: &[f64], shift: f64) -> Vec<f64> {
    let draw = |_| values[random.index(values.len())] - shift;
    (0..values.len()).map(draw).collect()
}
