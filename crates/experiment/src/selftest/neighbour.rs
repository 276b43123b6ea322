//! A busy process beside the trial: its blocks must be flagged.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Check;
use crate::jobs::relay::RelayBench;
use crate::jobs::{Bench, TrialSpec};
use crate::lock::MachineLock;
use crate::plan::{IdlePolicy, Load, Measure};

/// Share of the disturbed trials that must be flagged.
const GOAL: f64 = 0.95;

pub(super) fn check(trials: usize) -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let mut bench = RelayBench::new()?;
    let load = Load::paced("200B", "10kpps", 1, "200ms")?;
    let cpu = bench.relay_cpu().to_string();
    let mut neighbour = Command::new("taskset")
        .args(["-c", &cpu, "sh", "-c", "while :; do :; done"])
        .stdin(Stdio::null())
        .spawn()
        .context("taskset")?;
    let flagged = flagged(&mut bench, &load, trials);
    neighbour.kill()?;
    neighbour.wait()?;
    let share = flagged? as f64 / trials as f64;
    Ok(vec![Check::new(
        "a busy neighbour on a pinned CPU",
        "flags at least 95 % of trials",
        format!("{:.0} % of {trials}", share * 100.0),
        share >= GOAL,
    )])
}

fn flagged(bench: &mut RelayBench, load: &Load, trials: usize) -> Result<usize> {
    let mut flagged = 0;
    for number in 0..trials {
        let outcome = bench.trial(&TrialSpec {
            arm: "floor",
            load,
            measure: Measure::Delay,
            idle: IdlePolicy::None,
            seed: 2 * number as u64,
        })?;
        flagged += usize::from(
            outcome
                .flags
                .iter()
                .any(|flag| flag.contains("foreign CPU")),
        );
    }
    Ok(flagged)
}
