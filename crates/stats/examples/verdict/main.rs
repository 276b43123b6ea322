//! How often the verdict claims a difference that is not there, and how often it finds one that is: the tables of
//! docs/src/method-verdict.md. The argument is the number of simulated reports; 20 000 take some minutes.
#![allow(clippy::print_stdout, reason = "the tables are the result")]

mod noise;

use noise::{Noise, POWER, Simulation, claims};
use stats::{ClaimRule, MARGIN_ROWS};

fn main() {
    let reports = std::env::args()
        .nth(1)
        .and_then(|reports| reports.parse().ok());
    let reports = reports.unwrap_or(20_000);
    rules();
    false_claims(reports);
    power(reports);
}

fn rules() {
    println!("| blocks | interval | coverage | band | margin for {MARGIN_ROWS:?} rows |");
    println!("|---|---|---|---|---|");
    for blocks in [6, 7, 8, 9, 10, 12, 15, 20, 30, 40] {
        let of = |rows: &usize| ClaimRule::new(blocks, *rows);
        let Some(rule) = of(&1) else { continue };
        let margins: Vec<String> = MARGIN_ROWS
            .iter()
            .filter_map(|rows| Some(format!("{:.2}", of(rows)?.margin)))
            .collect();
        println!(
            "| {blocks} | {} to {} | {:.1} % | {} to {} | {} |",
            rule.interval.lower,
            rule.interval.upper,
            100.0 * rule.interval.coverage,
            rule.band.lower,
            rule.band.upper,
            margins.join(", ")
        );
    }
    println!();
}

/// No rule over ten or twenty blocks can tell these from a difference.
const WANDERING: [Noise; 3] = [
    Noise::Wandering(0.3),
    Noise::Wandering(0.5),
    Noise::Wandering(0.9),
];

fn false_claims(reports: usize) {
    println!(
        "False claims in per cent of {reports} reports, and the upper end of the 95 % interval:\n"
    );
    println!("| noise | 6 rows, n=10 | 12 rows, n=10 | 6 rows, n=20 | 12 rows, n=20 |");
    println!("|---|---|---|---|---|");
    for noise in Noise::ALL.into_iter().chain(WANDERING) {
        let cell = |blocks, rows| {
            let simulation = Simulation::new(noise, blocks, rows);
            let wrong = simulation.count(reports, |rows| rows.iter().any(claims));
            let (share, upper) = share(wrong, reports);
            format!("{share:.2} ({upper:.2})")
        };
        println!(
            "| {} | {} | {} | {} | {} |",
            name(noise),
            cell(10, 6),
            cell(10, 12),
            cell(20, 6),
            cell(20, 12)
        );
    }
    println!();
}

fn name(noise: Noise) -> String {
    match noise {
        Noise::Normal => "normal, 2 %".to_owned(),
        Noise::HeavyTail => "heavy tails (t, 2 degrees of freedom)".to_owned(),
        Noise::Bimodal => "two modes 40 % apart".to_owned(),
        Noise::Bursts => "steal bursts shared by a block".to_owned(),
        Noise::Steal(share) => format!("steal in {:.0} % of trials", 100.0 * share),
        Noise::FlaggedArms => "steal in 30 %, noticed in the arms".to_owned(),
        Noise::FlaggedBaseline => "steal in 30 %, noticed in the baseline".to_owned(),
        Noise::NoisyArms => "arms ten times as noisy".to_owned(),
        Noise::Wandering(coefficient) => format!("arms that wander, AR(1) {coefficient}"),
    }
}

fn power(reports: usize) {
    println!("| effect | n | claimed in a report of 6 rows | the inverse effect |");
    println!("|---|---|---|---|");
    for (name, noise, deviation, ratio, blocks, _) in POWER {
        let found = [ratio, 1.0 / ratio].map(|ratio| {
            let simulation = Simulation {
                deviation,
                ratio,
                ..Simulation::new(noise, blocks, 6)
            };
            let found = simulation.count(reports, |rows| claims(&rows[0]));
            share(found, reports).0
        });
        println!(
            "| {name} | {blocks} | {:.1} % | {:.1} % |",
            found[0], found[1]
        );
    }
}

/// A share in per cent, and the upper end of its 95 % interval by Wilson's score (Journal of the American Statistical
/// Association 22, 1927).
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of reports, far below 2^53"
)]
fn share(count: usize, all: usize) -> (f64, f64) {
    const Z: f64 = 1.96;
    let (count, all) = (count as f64, all as f64);
    let share = count / all;
    let middle = share + Z * Z / (2.0 * all);
    let half = Z * (share * (1.0 - share) / all + (Z / (2.0 * all)).powi(2)).sqrt();
    let upper = (middle + half) / (1.0 + Z * Z / all);
    (100.0 * share, 100.0 * upper)
}
