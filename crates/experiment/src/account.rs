//! The cost of a load on the whole machine, minus that of the idle machine and of the generator.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use probes::account::{Accountant, Options, State, Usage};

/// The accountant's group of this process, which generates the load.
const GENERATOR: u32 = 1;
/// Groups that a job may put its own tasks in.
pub(crate) const CAPTURE: u32 = 2;
pub(crate) const RECEIVE: u32 = 3;
/// How long the idle machine is watched.
const BASELINE: Duration = Duration::from_millis(200);

/// An accountant that separates the generator from everything else.
pub(crate) fn accountant() -> Result<Accountant> {
    Ok(Accountant::attach(&Options {
        groups: BTreeMap::from([(std::process::id(), GENERATOR)]),
        time_programs: true,
    })?)
}

/// The usage of the idle machine.
pub(crate) fn idle(accountant: &Accountant) -> Result<Usage> {
    let rest = || {
        thread::sleep(BASELINE);
        Ok(())
    };
    Ok(watch(accountant, rest)?.0)
}

/// The account of what `work` did to the machine.
pub(crate) fn watch<T>(
    accountant: &Accountant,
    work: impl FnOnce() -> Result<T>,
) -> Result<(Usage, T)> {
    let before = accountant.snapshot()?;
    let done = work()?;
    let after = accountant.snapshot()?;
    Ok((accountant.between(&before, &after), done))
}

/// Busy time less the generator's own and the instrument's, in nanoseconds.
fn net_busy(usage: &Usage) -> f64 {
    let group = &usage.groups[GENERATOR as usize];
    // Softirqs that the generator was made to run are the datapath's work: they stay.
    let generator = group[State::User as usize] + group[State::Syscall as usize];
    usage.busy_ns() as f64 - generator as f64 - usage.own_ns as f64
}

/// The cost of the load beyond that of the idle machine in the same time.
pub(crate) fn spent(usage: &Usage, idle: &Usage) -> f64 {
    let idle_share = net_busy(idle).max(0.0) / idle.wall_ns.max(1) as f64;
    net_busy(usage) - idle_share * usage.wall_ns as f64
}

/// A state's time outside the generator.
pub(crate) fn foreground(usage: &Usage, state: State) -> f64 {
    let generator = usage.groups[GENERATOR as usize][state as usize];
    usage.total(state).saturating_sub(generator) as f64
}

/// A group's own time, without the softirqs that it was made to run.
pub(crate) fn of_group(usage: &Usage, group: u32) -> f64 {
    let times = &usage.groups[group as usize];
    let own = [State::User, State::Syscall, State::Kthread];
    own.into_iter()
        .map(|state| times[state as usize])
        .sum::<u64>() as f64
}
