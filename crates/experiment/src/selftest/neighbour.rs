//! A busy process beside the trial: its blocks must be flagged.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use super::{Check, go_on};
use crate::environment::NATIVE;
use crate::idle::IdlePolicy;
use crate::jobs::relay::{Load, Measure, RelayBench, TrialSpec};
use crate::lock::MachineLock;
use crate::neighbour::Neighbour;
use crate::program::Lowroad;

/// Share of the disturbed trials that must be flagged.
const MIN_FLAGGED_SHARE: f64 = 0.95;

pub(super) fn check(trials: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let mut bench = RelayBench::prepare()?;
    let load = Load::paced("200B", "10kpps", 1, "200ms")?;
    let neighbour = Neighbour::start(bench.relay_cpu())?;
    let flagged = flagged(&mut bench, &load, trials, stop)?;
    drop(neighbour);
    let share = flagged as f64 / trials as f64;
    Ok(vec![Check::new(
        "a busy neighbour on a pinned CPU",
        "flags at least 95 % of trials",
        format!("{:.0} % of {trials}", share * 100.0),
        share >= MIN_FLAGGED_SHARE,
    )])
}

fn flagged(bench: &mut RelayBench, load: &Load, trials: usize, stop: &AtomicBool) -> Result<usize> {
    let mut flagged = 0;
    for number in 0..trials {
        go_on(stop)?;
        let outcome = bench.measure(&TrialSpec {
            arm: "floor",
            lowroad: &Lowroad::own(),
            program: None,
            load,
            measure: Measure::Delay,
            idle: IdlePolicy::None,
            environment: NATIVE,
            seed: 2 * number as u64,
            block: number,
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
