//! The verdict over thousands of simulated reports: how often it claims a difference that does not exist, and
//! how often it finds one that does. Seeded; no clock. `cargo run --release -p stats --example verdict` simulates more.

use stats::{Effect, Estimate};

use crate::noise::{Noise, POWER, Simulation, claims};

const REPORTS: usize = 1_000;

#[expect(clippy::cast_precision_loss, reason = "counts of reports")]
fn percent(count: usize, all: usize) -> f64 {
    100.0 * count as f64 / all as f64
}

#[test]
fn false_claims_are_at_most_one_percent_of_reports() {
    for noise in Noise::ALL {
        for blocks in [10, 20] {
            for rows in [6, 12] {
                let simulation = Simulation::new(noise, blocks, rows);
                let wrong = simulation.count(REPORTS, |rows| rows.iter().any(claims));
                let wrong = percent(wrong, REPORTS);
                println!("{noise:?} n={blocks} rows={rows}: {wrong:.2} %");
                assert!(wrong <= 1.0);
            }
        }
    }
}

/// No rule over so few blocks can tell a slow drift from a difference, but most of it is not claimed.
#[test]
fn arms_that_wander_are_seldom_claimed() {
    let simulation = Simulation::new(Noise::Wandering(0.5), 10, 6);
    let wrong = simulation.count(REPORTS, |rows| rows.iter().any(claims));
    let wrong = percent(wrong, REPORTS);
    println!("{wrong:.1} %");
    assert!(wrong <= 7.0);
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a count of reports")]
fn true_effects_are_found() {
    for (name, noise, deviation, ratio, blocks, least) in POWER {
        // Stolen time only adds, so that the smaller of two arms is a little harder to tell.
        for (ratio, allowance) in [(ratio, 0.0), (1.0 / ratio, 1.0)] {
            let simulation = Simulation {
                deviation,
                ratio,
                ..Simulation::new(noise, blocks, 6)
            };
            let found = simulation.count(REPORTS, |rows| claims(&rows[0]));
            let found = percent(found, REPORTS);
            println!("{name}, x{ratio:.3}, n={blocks}: found in {found:.1} %");
            // Two standard errors of a sample of 1 000 reports.
            let error = 200.0 * (least * (100.0 - least) / 1e4 / REPORTS as f64).sqrt();
            assert!(found >= least - allowance - error);
        }
    }
}

/// Where noise has a median at all, the interval covers the true effect as often as it says.
#[test]
fn intervals_cover_as_promised() {
    for noise in [Noise::Normal, Noise::HeavyTail, Noise::Steal(0.1)] {
        for blocks in [10, 20] {
            let simulation = Simulation {
                ratio: 0.7,
                ..Simulation::new(noise, blocks, 1)
            };
            let interval = |row: &Estimate| row.interval.unwrap();
            let covered = simulation.count(REPORTS, |rows| {
                let interval = interval(rows[0].all.as_ref().unwrap());
                interval.lower <= 0.7 && 0.7 <= interval.upper
            });
            let mut random = splitmix::SplitMix64::new(1);
            let row = simulation.report(&mut random).remove(0);
            let promised = 100.0 * interval(row.all.as_ref().unwrap()).confidence;
            let covered = percent(covered, REPORTS);
            println!("{noise:?} n={blocks}: {covered:.1} % of {promised:.1} %");
            // Three standard errors.
            assert!(covered >= promised - 1.5);
        }
    }
}

/// A repetition claims the smallest detectable effect of a run in about 80 % of cases.
#[test]
fn smallest_detectable_effect_is_claimed_by_four_repetitions_in_five() {
    const RUNS: usize = 300;
    for blocks in [10, 20] {
        let simulation = Simulation::new(Noise::Normal, blocks, 1);
        let mut random = splitmix::SplitMix64::new(blocks as u64);
        let mut claimed = 0;
        for _ in 0..RUNS {
            let first = simulation.report(&mut random).remove(0);
            let smallest = first.all.unwrap().smallest_detectable(Effect::Ratio);
            let repetition = Simulation {
                ratio: 1.0 + smallest.unwrap(),
                ..simulation
            };
            claimed += usize::from(claims(&repetition.report(&mut random)[0]));
        }
        let share = percent(claimed, RUNS);
        println!("n={blocks}: {share:.0} %");
        assert!((70.0..=90.0).contains(&share));
    }
}
