//! Simulated reports: one baseline that runs twice, some arms, and noise of a known kind.

use splitmix::SplitMix64;
use stats::{Better, Block, Comparison, Criteria, Effect, Flags, Verdict};

/// The disturbance of a report's trials. Values are logarithms; the noise of a trial is 2 % by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Noise {
    Normal,
    /// Student's t with two degrees of freedom: no variance.
    HeavyTail,
    /// Two modes 40 % apart, as when an idle CPU has to be woken or not.
    Bimodal,
    /// Stolen time hits most trials of one block in five.
    Bursts,
    /// Stolen time hits this share of the trials, each by itself.
    Steal(f64),
    /// Stolen time hits three trials in ten, and is noticed in those of the arms alone.
    FlaggedArms,
    /// The same, noticed in those of the baseline alone.
    FlaggedBaseline,
    /// Arms are ten times as noisy as the baseline.
    NoisyArms,
    /// Each arm wanders on its own from block to block: AR(1) with this coefficient and a deviation of 3 %, and 1 % of
    /// white noise. The baseline has the white noise alone.
    Wandering(f64),
}

impl Noise {
    /// Kinds that blocks exchange: none outlives its trial or its block.
    pub(crate) const ALL: [Self; 10] = [
        Self::Normal,
        Self::HeavyTail,
        Self::Bimodal,
        Self::Bursts,
        Self::Steal(0.0),
        Self::Steal(0.1),
        Self::Steal(0.3),
        Self::FlaggedArms,
        Self::FlaggedBaseline,
        Self::NoisyArms,
    ];
}

/// A simulated report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simulation {
    pub(crate) noise: Noise,
    pub(crate) blocks: usize,
    /// Rows of the report: each is an arm against the same baseline.
    pub(crate) rows: usize,
    /// The noise of a trial, as a logarithm.
    pub(crate) deviation: f64,
    /// The true ratio of arm and baseline.
    pub(crate) ratio: f64,
}

/// A trial's value and whether it was noticed that it was disturbed.
#[derive(Clone, Copy)]
struct Trial {
    value: f64,
    disturbed: bool,
}

impl Simulation {
    pub(crate) fn new(noise: Noise, blocks: usize, rows: usize) -> Self {
        Self {
            noise,
            blocks,
            rows,
            deviation: 0.02,
            ratio: 1.0,
        }
    }

    /// The rows of one report.
    pub(crate) fn report(&self, random: &mut SplitMix64) -> Vec<Comparison> {
        let mut rows = vec![Vec::with_capacity(self.blocks); self.rows];
        let mut states: Vec<f64> = (0..self.rows).map(|_| 0.03 * random.normal()).collect();
        for _ in 0..self.blocks {
            let burst = random.unit() < 0.2;
            let baseline = self.trial(random, None, burst);
            let again = self.trial(random, None, burst);
            for (row, state) in rows.iter_mut().zip(&mut states) {
                let arm = self.trial(random, Some(state), burst);
                row.push(Block {
                    arm: Some(self.ratio * arm.value),
                    baseline: Some(baseline.value),
                    aa: Some((baseline.value, again.value)),
                    arm_disturbed: arm.disturbed,
                    baseline_disturbed: baseline.disturbed,
                    other_disturbed: again.disturbed,
                });
            }
        }
        rows.iter().map(|blocks| self.compare(blocks)).collect()
    }

    /// A trial of an arm with this state, or of the baseline.
    fn trial(&self, random: &mut SplitMix64, state: Option<&mut f64>, burst: bool) -> Trial {
        let arm = state.is_some();
        let white = self.deviation * random.normal();
        let stolen = |random: &mut SplitMix64, share: f64| {
            let hit = random.unit() < share;
            // The mean of what is stolen from a trial that is hit is half its time.
            let by = -0.5 * random.open_unit().ln();
            (if hit { by } else { 0.0 }, hit)
        };
        let (noise, disturbed) = match self.noise {
            Noise::Normal => (white, false),
            Noise::HeavyTail => (white / (-random.open_unit().ln()).sqrt(), false),
            Noise::Bimodal => {
                let mode = if random.unit() < 0.5 { 0.34 } else { 0.0 };
                (white + mode, false)
            }
            Noise::Bursts => {
                let (by, hit) = stolen(random, if burst { 0.7 } else { 0.0 });
                (white + by, hit)
            }
            Noise::Steal(share) => {
                let (by, hit) = stolen(random, share);
                (white + by, hit)
            }
            Noise::FlaggedArms => {
                let (by, hit) = stolen(random, 0.3);
                (white + by, hit && arm)
            }
            Noise::FlaggedBaseline => {
                let (by, hit) = stolen(random, 0.3);
                (white + by, hit && !arm)
            }
            Noise::NoisyArms if arm => (10.0 * white, false),
            Noise::NoisyArms => (white, false),
            Noise::Wandering(coefficient) => {
                let wander = state.map_or(0.0, |state| {
                    let step = 0.03 * (1.0 - coefficient * coefficient).sqrt();
                    *state = coefficient * *state + step * random.normal();
                    *state
                });
                (wander + 0.5 * white, false)
            }
        };
        Trial {
            value: 20.0 * noise.exp(),
            disturbed,
        }
    }

    fn compare(&self, blocks: &[Block]) -> Comparison {
        let clean: Vec<Block> = blocks
            .iter()
            .filter(|block| !block.is_disturbed())
            .copied()
            .collect();
        let count = |disturbed: &dyn Fn(&Block) -> usize, runs: usize| Flags {
            flagged: blocks.iter().map(disturbed).sum(),
            trials: runs * blocks.len(),
        };
        let of_baseline = |block: &Block| {
            usize::from(block.baseline_disturbed) + usize::from(block.other_disturbed)
        };
        let criteria = Criteria {
            effect: Effect::Ratio,
            better: Better::Lower,
            rows: self.rows,
            resolution: 0.0,
            offset: 0.0,
            flags: [
                count(&|block| usize::from(block.arm_disturbed), 1),
                count(&of_baseline, 2),
            ],
        };
        Comparison::new(&criteria, blocks, &clean)
    }

    /// How many of `reports` reports meet `condition`.
    pub(crate) fn count(&self, reports: usize, condition: impl Fn(&[Comparison]) -> bool) -> usize {
        // A seed of its own for each kind, so that a kind can be simulated by itself.
        let kind = Noise::ALL.iter().position(|noise| *noise == self.noise);
        let seed = 4711 + 1000 * kind.unwrap_or(0) + self.blocks + 100 * self.rows;
        let mut random = SplitMix64::new(seed as u64);
        (0..reports)
            .filter(|_| condition(&self.report(&mut random)))
            .count()
    }
}

/// Whether a row claims a difference.
pub(crate) fn claims(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Better | Verdict::Worse)
}

/// Effects that have to be found: name, noise, deviation, ratio, blocks and the least share of reports in percent.
pub(crate) const POWER: [(&str, Noise, f64, f64, usize, f64); 3] = [
    (
        "2x, 10 % noise, steal in 10 %",
        Noise::Steal(0.1),
        0.10,
        2.0,
        10,
        90.0,
    ),
    (
        "2x, 10 % noise, steal in 10 %",
        Noise::Steal(0.1),
        0.10,
        2.0,
        20,
        99.0,
    ),
    ("5 %, 2 % noise", Noise::Normal, 0.02, 1.05, 20, 90.0),
];
