//! What else the machine did around a trial: time taken away before and after, and foreign
//! processes during it.

use std::time::Duration;
use std::{mem, thread};

use anyhow::Result;
use probes::foreign::Foreign;
use sys::clock::{Gaps, gaps};

use crate::jobs::Outcome;

/// How long the gap detector spins on each CPU.
const WINDOW: Duration = Duration::from_millis(100);
/// More time lost than this, beyond what the machine always loses, flags a trial, in per cent.
const LOST_PCT: f64 = 1.0;
/// How often the quiet machine is looked at.
const LOOKS: usize = 5;
/// A machine that always loses more than this is not quiet, in per cent.
const QUIET_PCT: f64 = 3.0;

/// What the gap detector sees between trials.
///
/// A quiet machine loses time too: to its own timer, and as a guest to its host's, some 10 us a
/// thousand times a second. That is the same beside every trial; what exceeds it is not.
#[derive(Debug)]
pub(super) struct Beside {
    quiet_pct: f64,
    before: Gaps,
}

impl Beside {
    pub(super) fn new() -> Result<Self> {
        let looks: Vec<Gaps> = (0..LOOKS).map(|_| look()).collect::<Result<_>>()?;
        let lost: Vec<f64> = looks.iter().map(|gaps| gaps.lost_pct).collect();
        Ok(Self {
            quiet_pct: stats::median(&lost).unwrap_or(0.0).min(QUIET_PCT),
            before: looks.last().copied().unwrap_or_default(),
        })
    }

    /// Looks after a trial, and notes the worse of the windows before and after.
    pub(super) fn note(&mut self, outcome: &mut Outcome) -> Result<()> {
        let after = look()?;
        let before = mem::replace(&mut self.before, after);
        let lost = before.lost_pct.max(after.lost_pct);
        let longest = before.longest_ns.max(after.longest_ns);
        for (name, value) in [
            ("tsc_quiet_pct", self.quiet_pct),
            ("tsc_lost_pct", lost),
            ("tsc_gap_us_max", longest as f64 / 1e3),
        ] {
            outcome.noise.insert(name.to_owned(), value);
        }
        if lost > self.quiet_pct + LOST_PCT {
            outcome.flags.push(format!(
                "CPU taken away for {lost:.1} % of the time beside the trial, {:.1} % being usual",
                self.quiet_pct
            ));
        }
        Ok(())
    }
}

/// The worst gap figures over all CPUs; never measured during a trial. One CPU at a time: spinning
/// on all of them at once finds what a hypervisor takes back for doing so.
fn look() -> Result<Gaps> {
    let cpus: Vec<usize> = (0..thread::available_parallelism()?.get()).collect();
    let worst = gaps(&cpus, WINDOW)?
        .into_iter()
        .max_by(|a, b| a.lost_pct.total_cmp(&b.lost_pct));
    Ok(worst.unwrap_or_default())
}

/// More CPU than this, used by processes that are no part of the trial, flags it, in per cent.
const FOREIGN_PCT: f64 = 2.0;

/// How long, and how often, the machine is watched for what still runs.
const BREATH: Duration = Duration::from_millis(10);
const BREATHS: u32 = 40;

/// Waits until the kernel's threads are done with what setting up this trial and taking down the
/// last one left them: freed maps and namespaces take them tens of milliseconds. A machine that is
/// busy for other reasons is not waited for longer than that takes.
fn settle(foreign: &Foreign, allowed: &[u32], cpus: &[usize]) -> Result<Duration> {
    for breath in 0..BREATHS {
        let before = foreign.snapshot()?;
        thread::sleep(BREATH);
        let percent = foreign.snapshot()?.foreign_percent(&before, allowed, cpus);
        if percent < FOREIGN_PCT / 2.0 {
            return Ok(BREATH * breath);
        }
    }
    Ok(BREATH * BREATHS)
}

/// Runs the loaded part of a trial and notes which processes beside `own` and this one ran on the
/// machine's CPUs meanwhile.
pub(super) fn watched<T>(
    foreign: &Foreign,
    own: &[u32],
    outcome: &mut Outcome,
    load: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let allowed: Vec<u32> = own.iter().copied().chain([std::process::id()]).collect();
    let cpus: Vec<usize> = (0..thread::available_parallelism()?.get()).collect();
    let waited = settle(foreign, &allowed, &cpus)?;
    let before = foreign.snapshot()?;
    let done = load()?;
    let after = foreign.snapshot()?;
    let waited_ms = waited.as_secs_f64() * 1e3;
    outcome.noise.insert("settled_ms".to_owned(), waited_ms);
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
