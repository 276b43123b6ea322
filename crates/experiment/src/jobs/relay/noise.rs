//! What else the machine did around a trial: lost time before and after, and foreign processes
//! during it.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use probes::foreign::Foreign;
use sys::clock::{Gaps, gaps};

use crate::jobs::Outcome;

/// How long the kernel takes to clean up after a trial's namespaces, on its own worker threads:
/// that is no noise beside the trial.
const TEARDOWN: Duration = Duration::from_millis(60);
/// How long the gap detector spins between two trials, over all CPUs.
const WINDOW: Duration = Duration::from_millis(100);
/// More time lost than this flags the trials on both sides, in per cent.
const LOST_PCT: f64 = 1.0;

/// The worst gap figures over all CPUs, measured between trials; never during one. One CPU at a
/// time: spinning on all of them at once finds what a hypervisor takes back for doing so.
pub(super) fn between_trials() -> Result<Gaps> {
    let cpus: Vec<usize> = (0..thread::available_parallelism()?.get()).collect();
    thread::sleep(TEARDOWN);
    let found = gaps(&cpus, WINDOW / u32::try_from(cpus.len()).unwrap_or(1))?;
    let worst = found
        .into_iter()
        .max_by(|a, b| a.lost_pct.total_cmp(&b.lost_pct));
    Ok(worst.unwrap_or_default())
}

/// Notes the windows before and after a trial.
pub(super) fn note(outcome: &mut Outcome, before: &Gaps, after: &Gaps) {
    let worst = before.lost_pct.max(after.lost_pct);
    let longest = before.longest_ns.max(after.longest_ns);
    outcome.noise.insert("tsc_lost_pct".to_owned(), worst);
    outcome
        .noise
        .insert("tsc_gap_us_max".to_owned(), longest as f64 / 1e3);
    if worst > LOST_PCT {
        outcome.flags.push(format!(
            "CPU taken away for {worst:.1} % of the time beside the trial"
        ));
    }
}

/// More CPU than this, used by processes that are no part of the trial, flags it, in per cent.
const FOREIGN_PCT: f64 = 2.0;

/// Runs the loaded part of a trial and notes which processes beside `own` and this one ran on the
/// machine's CPUs meanwhile.
pub(super) fn watched<T>(
    foreign: &Foreign,
    own: &[u32],
    outcome: &mut Outcome,
    load: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let before = foreign.snapshot()?;
    let done = load()?;
    let after = foreign.snapshot()?;
    let allowed: Vec<u32> = own.iter().copied().chain([std::process::id()]).collect();
    let cpus: Vec<usize> = (0..thread::available_parallelism()?.get()).collect();
    let percent = after.foreign_percent(&before, &allowed, &cpus);
    outcome.noise.insert("foreign_cpu_pct".to_owned(), percent);
    if percent > FOREIGN_PCT {
        let longest = after.foreign(&before, &allowed, &cpus);
        let name = longest.first().map_or("?", |(name, _)| name.as_str());
        outcome
            .flags
            .push(format!("foreign CPU {percent:.1} %, most by {name}"));
    }
    Ok(done)
}
