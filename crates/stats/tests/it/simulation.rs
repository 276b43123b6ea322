//! What the two-condition rule does over thousands of simulated experiments: how often it claims a
//! difference that is not there, and how often it finds one that is. Seeded; no clock.

use splitmix::SplitMix64;
use stats::{Better, Block, Comparison, Effect, Estimate, Verdict};

const EXPERIMENTS: u64 = 2_000;

/// Trials in a block: the baseline three times and four arms.
const TRIALS: usize = 7;

/// Noise of a trial, as a logarithm.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Log-normal, 2 %.
    Lognormal,
    /// Student's t with two degrees of freedom: no variance.
    HeavyTail,
    /// Two modes 40 % apart, as when an idle CPU has to be woken or not.
    Bimodal,
    /// The machine warms up over the run and within each block.
    Drift,
    /// Each trial remembers the one before: AR(1), 0.8.
    Autocorrelated,
    /// Disturbances that last several blocks and hit one trial in five.
    Bursts,
    /// Each arm wanders on its own from block to block: AR(1), 0.5.
    WanderingArms,
}

const SHAPES: [Shape; 7] = [
    Shape::Lognormal,
    Shape::HeavyTail,
    Shape::Bimodal,
    Shape::Drift,
    Shape::Autocorrelated,
    Shape::Bursts,
    Shape::WanderingArms,
];

/// Log noise of every trial of an experiment: `[block][role]`, roles being B, B', B'' and the arms,
/// run in random order within each block.
fn experiment(shape: Shape, blocks: usize, random: &mut SplitMix64) -> Vec<[f64; TRIALS]> {
    let mut memory = [0.0; TRIALS];
    let mut last = 0.0;
    let mut burst = 0;
    (0..blocks)
        .map(|block| {
            let mut order: Vec<usize> = (0..TRIALS).collect();
            random.shuffle(&mut order);
            if random.open_unit() < 0.2 {
                burst = 3;
            }
            let disturbed = burst > 0;
            burst -= i32::from(disturbed);
            let mut values = [0.0; TRIALS];
            for (place, &role) in order.iter().enumerate() {
                let white = 0.02 * random.normal();
                values[role] = match shape {
                    Shape::Lognormal => white,
                    Shape::HeavyTail => white / (-random.open_unit().ln()).sqrt(),
                    Shape::Bimodal => white + if random.open_unit() < 0.5 { 0.34 } else { 0.0 },
                    Shape::Drift => {
                        white + 0.01 * (block * TRIALS + place) as f64 + 0.02 * place as f64
                    }
                    Shape::Autocorrelated => {
                        last = 0.8 * last + white;
                        last
                    }
                    Shape::Bursts if disturbed && random.open_unit() < 0.2 => {
                        white + 0.5 * random.open_unit()
                    }
                    Shape::Bursts => white,
                    Shape::WanderingArms => {
                        memory[role] = 0.5 * memory[role] + white;
                        memory[role]
                    }
                };
            }
            values
        })
        .collect()
}

fn blocks(noise: &[[f64; TRIALS]], role: usize, ratio: f64) -> Vec<Block> {
    noise
        .iter()
        .map(|block| Block {
            arm: 20.0 * ratio * block[role].exp(),
            baseline: 20.0 * block[0].exp(),
            aa: Some((20.0 * block[0].exp(), 20.0 * block[1].exp())),
        })
        .collect()
}

fn compare(blocks: &[Block], effect: Effect) -> Comparison {
    Comparison::new(effect, Better::Lower, blocks, blocks, None)
}

/// Share of experiments, in percent, whose comparison `role` over baseline meets `claim`.
fn percent(shape: Shape, n: usize, mut meets: impl FnMut(&[[f64; TRIALS]]) -> bool) -> f64 {
    let mut random = SplitMix64::new(4711 + n as u64);
    let met = (0..EXPERIMENTS)
        .filter(|_| meets(&experiment(shape, n, &mut random)))
        .count();
    100.0 * met as f64 / EXPERIMENTS as f64
}

fn claimed(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Better | Verdict::Worse)
}

#[test]
fn false_claims_are_at_most_one_percent() {
    for shape in SHAPES {
        for n in [10, 20] {
            for effect in [Effect::Ratio, Effect::Difference] {
                let arm = percent(shape, n, |noise| {
                    claimed(&compare(&blocks(noise, 3, 1.0), effect))
                });
                let third = percent(shape, n, |noise| {
                    claimed(&compare(&blocks(noise, 2, 1.0), effect))
                });
                println!("{shape:?} n={n} {effect:?}: {arm:.2} % an arm, {third:.2} % B''");
                assert!(arm <= 1.0 && third <= 1.0);
            }
        }
    }
}

/// A pair that does not hold the baseline is judged by the baseline's band.
#[test]
fn equal_arms_differ_in_at_most_one_percent() {
    for shape in SHAPES {
        for n in [10, 20] {
            let wrong = percent(shape, n, |noise| {
                let mut pair = blocks(noise, 3, 1.0);
                for (block, noise) in pair.iter_mut().zip(noise) {
                    block.baseline = 20.0 * noise[4].exp();
                }
                claimed(&compare(&pair, Effect::Ratio))
            });
            println!("{shape:?} n={n}: {wrong:.2} %");
            assert!(wrong <= 1.0);
        }
    }
}

#[test]
fn a_true_ten_percent_under_two_percent_noise_is_found() {
    for n in [10, 20] {
        for (ratio, verdict) in [(0.9, Verdict::Better), (1.1, Verdict::Worse)] {
            let found = percent(Shape::Lognormal, n, |noise| {
                compare(&blocks(noise, 3, ratio), Effect::Ratio).verdict == verdict
            });
            println!("x{ratio} n={n}: found in {found:.1} %");
            assert!(found >= 95.0);
        }
    }
}

/// Where noise has a median at all, the interval covers the true effect as often as it says.
#[test]
fn intervals_cover_as_promised() {
    for shape in [Shape::Lognormal, Shape::HeavyTail, Shape::Drift] {
        for n in [10, 20] {
            let mut promised = 0.0;
            let covered = percent(shape, n, |noise| {
                let Estimate { interval, .. } = compare(&blocks(noise, 3, 0.7), Effect::Ratio)
                    .clean
                    .unwrap();
                let interval = interval.unwrap();
                promised = 100.0 * interval.confidence;
                interval.lower <= 0.7 && 0.7 <= interval.upper
            });
            println!("{shape:?} n={n}: {covered:.1} % of {promised:.1} %");
            // Three standard errors of 2 000 experiments.
            assert!(covered >= promised - 1.5);
        }
    }
}
