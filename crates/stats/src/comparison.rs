//! One arm against one baseline over paired blocks: what is claimed, and why not more.
//!
//! Every first attempt counts, disturbed or not (intention to treat): blocks are randomised, so that a disturbance hits
//! every arm alike and widens the interval instead of shifting it. [`ClaimRule`](crate::ClaimRule) states what a claim
//! needs. The blocks without a disturbance are a second opinion: where they contradict the first one, nothing is claimed.
//! tests/it/simulation.rs holds how often the rule claims a difference that is not there, and how often it finds one
//! that is.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::drift::{DRIFT_DEVIATIONS, is_drifting};
use crate::estimate::{Condition, Direction, Effect, Estimate, Pairs};
use crate::flags::Flags;
use crate::order::{Interval, median};

/// The fewest undisturbed blocks that are a second opinion.
const MIN_CLEAN_BLOCKS: usize = 5;
/// The fewest blocks, and A/A pairs, that have an interval.
const MIN_BLOCKS: usize = 6;

/// Which direction of a metric is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Lower,
    Higher,
}

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    NoDifference,
    /// The blocks do not carry a verdict; the reason says why.
    Unreliable,
    /// The arm did not run; the reason says why.
    Skipped,
    /// One of the two ran in an emulated machine, whose times are the emulator's.
    Emulated,
}

/// The values of one block that one comparison needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Block {
    /// None where the trial failed: it could not be measured, or its accounts do not add up.
    pub arm: Option<f64>,
    pub baseline: Option<f64>,
    /// First and second run of the experiment's baseline in this block.
    pub aa: Option<(f64, f64)>,
    /// Whether the arm's trial was disturbed.
    pub arm_disturbed: bool,
    /// Whether the baseline's was.
    pub baseline_disturbed: bool,
    /// Whether another trial was that the comparison rests on.
    pub other_disturbed: bool,
}

/// The rules that a comparison is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criteria {
    pub effect: Effect,
    pub better: Better,
    /// How many rows of the report may claim: the more there are, the more each has to show.
    pub rows: usize,
    /// How far a value may be from the one that was measured, as a share of it: half a bucket of a histogram.
    pub resolution: f64,
    /// The amount that was subtracted from every value, such as the floor's delay from an added delay: the resolution
    /// is a share of the value before. 0 for values as they were measured.
    pub offset: f64,
    /// How often trials of the arm and of the baseline were disturbed.
    pub flags: [Flags; 2],
}

/// One arm against one baseline: everything a row of a summary says.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub effect: Effect,
    /// The estimate of every first attempt, disturbed or not: the result.
    pub all: Option<Estimate>,
    /// The estimate of the undisturbed blocks, where some were disturbed and at least five were not.
    pub clean: Option<Estimate>,
    /// Blocks that were disturbed.
    pub disturbed: usize,
    /// Trials of the arm and of the baseline that failed.
    pub failed: [usize; 2],
    /// Whether the effect drifts from block to block.
    pub drifting: bool,
    /// How likely a value of the arm is above a value of the baseline, of whatever blocks, equal ones counting half:
    /// Vargha and Delaney's A12 (2000), 0.5 where neither tends to be above.
    pub a12: Option<f64>,
    pub verdict: Verdict,
    /// Why the row is unreliable, or what stood against a claim.
    pub reason: Option<String>,
}

impl Comparison {
    /// Compares over the blocks that hold both arms: `all` of them as they first ran, in their order, and those that are
    /// `clean`.
    #[must_use]
    pub fn new(criteria: &Criteria, all: &[Block], clean: &[Block]) -> Self {
        let effect = criteria.effect;
        let pairs = criteria.pairs(all);
        let estimate = |blocks: &[Block]| {
            Estimate::new(effect, blocks, &criteria.pairs(blocks), criteria.rows)
        };
        let disturbed = all.iter().filter(|block| block.is_disturbed()).count();
        let second_opinion = disturbed > 0 && clean.len() >= MIN_CLEAN_BLOCKS;
        let mut comparison = Self {
            effect,
            all: estimate(all),
            clean: second_opinion.then(|| estimate(clean)).flatten(),
            disturbed,
            failed: [
                all.iter().filter(|block| block.arm.is_none()).count(),
                all.iter().filter(|block| block.baseline.is_none()).count(),
            ],
            drifting: is_drifting(&pairs.effects),
            a12: a12(all),
            verdict: Verdict::Unreliable,
            reason: None,
        };
        match comparison.direction(criteria, all, &pairs) {
            Ok(direction) => comparison.verdict = criteria.better.verdict(direction),
            Err(NoClaim::Unreliable(reason)) => comparison.reason = Some(reason),
            Err(NoClaim::NoDifference(reason)) => {
                comparison.verdict = Verdict::NoDifference;
                comparison.reason = reason;
            }
        }
        comparison
    }

    /// The side of equality that is claimed.
    fn direction(
        &self,
        criteria: &Criteria,
        blocks: &[Block],
        pairs: &Pairs,
    ) -> Result<Direction, NoClaim> {
        let Some(all) = &self.all else {
            return Err(self.nothing_measured(blocks.len()));
        };
        if self.effect == Effect::Ratio && all.arm_median.min(all.baseline_median) <= 0.0 {
            return Err(NoClaim::unreliable(
                "a median is not above 0, so it has no ratio",
            ));
        }
        let Some(interval) = all.interval else {
            return Err(NoClaim::Unreliable(format!(
                "only {} blocks, and an interval needs {MIN_BLOCKS}",
                all.n
            )));
        };
        if all.aa.is_none() {
            return Err(NoClaim::Unreliable(format!(
                "fewer than {MIN_BLOCKS} A/A pairs"
            )));
        }
        let claim = pairs.direction(criteria.rows);
        let failures = self.failed.iter().any(|failed| *failed > 0);
        if claim.is_none()
            && failures
            && !(interval.lower.is_finite() && interval.upper.is_finite())
        {
            return Err(self.nothing_measured(blocks.len()));
        }
        if let Some(clean) = &self.clean
            && let Some(within) = clean.interval
            && !(within.lower..=within.upper).contains(&all.effect)
        {
            return Err(NoClaim::Unreliable(format!(
                "the {} undisturbed blocks exclude the effect of all blocks",
                clean.n
            )));
        }
        let Some(direction) = claim else {
            return Err(NoClaim::NoDifference(criteria.unmet(interval, pairs)));
        };
        if let Some(clean) = &self.clean
            && clean.side(self.effect) != Some(direction)
        {
            return Err(NoClaim::Unreliable(format!(
                "the {} undisturbed blocks show the opposite",
                clean.n
            )));
        }
        let [arm, baseline] = criteria.flags;
        if let Some(points) = arm.gap(baseline)
            && !criteria.stands_at_worst(blocks, direction)
        {
            return Err(NoClaim::Unreliable(format!(
                "the arms' shares of disturbed trials are {points:.0} points apart"
            )));
        }
        if self.drifting && !exceeds_drift(pairs) {
            return Err(NoClaim::NoDifference(Some(format!(
                "the effect drifts from block to block and is below {DRIFT_DEVIATIONS:.0} standard deviations"
            ))));
        }
        Ok(direction)
    }

    /// Too many trials failed for a result.
    fn nothing_measured(&self, blocks: usize) -> NoClaim {
        let [arm, baseline] = self.failed;
        match (arm, baseline) {
            (0, 0) => NoClaim::unreliable("no block holds both arms"),
            (_, 0) => NoClaim::Unreliable(format!("{arm} of {blocks} trials failed")),
            _ => NoClaim::Unreliable(format!(
                "{arm} of {blocks} trials failed, and {baseline} of the baseline"
            )),
        }
    }
}

impl Criteria {
    /// The rules for exact values of undisturbed trials, in a report of `rows` rows.
    #[must_use]
    pub fn new(effect: Effect, better: Better, rows: usize) -> Self {
        Self {
            effect,
            better,
            rows,
            resolution: 0.0,
            offset: 0.0,
            flags: [Flags::default(); 2],
        }
    }

    fn pairs(&self, blocks: &[Block]) -> Pairs {
        let worse = match self.better {
            Better::Lower => Direction::Above,
            Better::Higher => Direction::Below,
        };
        let precision = (self.resolution, self.offset);
        Pairs::new(self.effect, worse, blocks, precision)
    }

    /// Why an effect whose interval excludes equality is not claimed; none where the interval includes it.
    fn unmet(&self, interval: Interval, pairs: &Pairs) -> Option<String> {
        let equal = self.effect.equality();
        let side = if interval.lower > equal {
            Direction::Above
        } else if interval.upper < equal {
            Direction::Below
        } else {
            return None;
        };
        let rows = self.rows;
        let unmet = pairs.unmet(side, rows).into_iter();
        let reasons: Vec<String> = unmet
            .map(|condition| match condition {
                Condition::Margin { share } => format!(
                    "a claim in a report of {rows} rows needs an interval that is farther from equality than {:.0} % of its width",
                    100.0 * share
                ),
                Condition::Band => "the effect lies within the A/A band".to_owned(),
                Condition::Halves => "the halves of the run disagree".to_owned(),
            })
            .collect();
        Some(reasons.join("; "))
    }

    /// Whether a claim stands when each disturbed trial is replaced by the least favourable value that its arm had.
    fn stands_at_worst(&self, blocks: &[Block], direction: Direction) -> bool {
        let extremes = |of: fn(&Block) -> Option<f64>| {
            let values = || blocks.iter().filter_map(of);
            let lowest = values().reduce(f64::min);
            let highest = values().reduce(f64::max);
            (lowest, highest)
        };
        let (arm, baseline) = (
            extremes(|block| block.arm),
            extremes(|block| block.baseline),
        );
        let (arm, baseline) = match direction {
            Direction::Above => (arm.0, baseline.1),
            Direction::Below => (arm.1, baseline.0),
        };
        let replaced = |block: &Block| {
            let mut block = *block;
            if block.arm_disturbed && block.arm.is_some() {
                block.arm = arm;
            }
            if block.baseline_disturbed && block.baseline.is_some() {
                block.baseline = baseline;
            }
            block
        };
        let replaced: Vec<Block> = blocks.iter().map(replaced).collect();
        self.pairs(&replaced).direction(self.rows) == Some(direction)
    }
}

impl Block {
    /// Whether any trial was disturbed that the comparison rests on.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.arm_disturbed || self.baseline_disturbed || self.other_disturbed
    }
}

impl Better {
    fn verdict(self, direction: Direction) -> Verdict {
        match (self, direction) {
            (Self::Lower, Direction::Below) | (Self::Higher, Direction::Above) => Verdict::Better,
            (Self::Lower, Direction::Above) | (Self::Higher, Direction::Below) => Verdict::Worse,
        }
    }
}

/// Why no difference is claimed.
enum NoClaim {
    Unreliable(String),
    NoDifference(Option<String>),
}

impl NoClaim {
    fn unreliable(reason: &str) -> Self {
        Self::Unreliable(reason.to_owned())
    }
}

/// Whether the effect is too large for a slow drift.
fn exceeds_drift(pairs: &Pairs) -> bool {
    let size = median(&pairs.effects).map(f64::abs);
    size.zip(pairs.robust_deviation())
        .is_some_and(|(size, deviation)| size > DRIFT_DEVIATIONS * deviation)
}

fn a12(blocks: &[Block]) -> Option<f64> {
    let mut pairs = 0;
    let mut above = 0.0;
    for arm in blocks.iter().filter_map(|block| block.arm) {
        for other in blocks.iter().filter_map(|block| block.baseline) {
            pairs += 1;
            above += match arm.total_cmp(&other) {
                Ordering::Greater => 1.0,
                Ordering::Equal => 0.5,
                Ordering::Less => 0.0,
            };
        }
    }
    (pairs > 0).then(|| above / crate::order::float(pairs))
}

#[cfg(test)]
mod tests;
