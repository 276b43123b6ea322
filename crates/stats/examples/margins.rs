//! The margins of `ClaimRule`: by how much of its own width an interval misses equality by chance, in one row of as many
//! as keep a report to 1 % false claims. The larger of normal and uniform noise counts.
#![allow(clippy::print_stdout, reason = "the table is the result")]

use splitmix::SplitMix64;
use stats::{ClaimRule, MARGIN_ROWS, median};

/// Simulated rows for each number of blocks and each kind of noise.
const ROWS: usize = 1_000_000;
/// False claims of a whole report.
const FALSE_CLAIMS: f64 = 0.01;

fn main() {
    for blocks in (6..=20).chain([25, 30, 40, 50, 60]) {
        let kinds: [fn(&mut SplitMix64) -> f64; 2] =
            [SplitMix64::normal, |random| 2.0 * random.unit() - 1.0];
        let quantiles = kinds.map(|noise| quantiles(blocks, noise));
        let margins: Vec<String> = (0..MARGIN_ROWS.len())
            .map(|at| {
                let largest = quantiles[0][at].max(quantiles[1][at]).max(0.0);
                format!("{:.2}", (100.0 * largest).ceil() / 100.0)
            })
            .collect();
        println!("{blocks}: [{}]", margins.join(", "));
    }
}

/// The distances from equality, as shares of the width, that one row in each number of `MARGIN_ROWS` exceeds.
fn quantiles(blocks: usize, noise: fn(&mut SplitMix64) -> f64) -> Vec<f64> {
    let mut random = SplitMix64::new(blocks as u64);
    let mut distances: Vec<f64> = (0..ROWS)
        .map(|_| distance(&(0..blocks).map(|_| noise(&mut random)).collect::<Vec<_>>()))
        .collect();
    distances.sort_unstable_by(|a, b| b.total_cmp(a));
    let of_rows = |rows: &usize| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place among a million rows"
        )]
        let place = (ROWS as f64 * FALSE_CLAIMS / *rows as f64) as usize;
        distances[place]
    };
    MARGIN_ROWS.iter().map(of_rows).collect()
}

/// Negative where the interval holds equality, or the halves lie on different sides of it.
fn distance(values: &[f64]) -> f64 {
    let Some(rule) = ClaimRule::new(values.len(), 1) else {
        return -1.0;
    };
    let (first, second) = values.split_at(values.len() / 2);
    let sides = median(first).zip(median(second));
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (lower, upper) = (
        sorted[rule.interval.lower - 1],
        sorted[rule.interval.upper - 1],
    );
    match sides {
        Some((first, second)) if lower > 0.0 && first > 0.0 && second > 0.0 => {
            lower / (upper - lower)
        }
        Some((first, second)) if upper < 0.0 && first < 0.0 && second < 0.0 => {
            -upper / (upper - lower)
        }
        _ => -1.0,
    }
}
