//! The CPU time spent between two snapshots.

use std::collections::BTreeMap;

use super::{GROUPS, Snapshot, State, Times};
use crate::programs::{self, ProgramRun};

/// CPU time of a trial, over all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    pub wall_ns: u64,
    /// By CPU that was counted throughout.
    pub cpus: Vec<CpuUsage>,
    /// By group of tasks: what ran while the group was on a CPU, softirqs it was made to do
    /// included.
    pub groups: [Times; GROUPS],
    pub events: u64,
    pub switches: u64,
    /// States that had to be guessed again: more than 0 invalidates the trial.
    pub resyncs: u64,
    /// Switches between tasks that were not seen, and found out later: the time in between is the
    /// found task's.
    pub unseen: u64,
    /// BPF programs that ran, when they were timed.
    pub programs: Vec<ProgramRun>,
    /// Time in the accountant's own programs, when they were timed. Part of the states.
    pub own_ns: u64,
    /// Runs of the accountant's own programs that the kernel refused: their events are lost.
    pub misses: u64,
}

/// One CPU's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuUsage {
    pub cpu: usize,
    pub times: Times,
}

impl Usage {
    pub(super) fn between(before: &Snapshot, after: &Snapshot, own: &[u32]) -> Self {
        let mut usage = Self {
            wall_ns: after.at_ns.saturating_sub(before.at_ns),
            cpus: Vec::new(),
            groups: [[0; State::ALL.len()]; GROUPS],
            events: 0,
            switches: 0,
            resyncs: 0,
            unseen: 0,
            programs: programs::ran_between(&before.programs, &after.programs),
            own_ns: 0,
            misses: 0,
        };
        for (cpu, pair) in before.cpus.iter().zip(&after.cpus).enumerate() {
            let (Some(then), Some(now)) = pair else {
                continue;
            };
            let mut times = [0; State::ALL.len()];
            for (group, (then, now)) in then.times.iter().zip(&now.times).enumerate() {
                for (state, (then, now)) in then.iter().zip(now).enumerate() {
                    let spent = now.saturating_sub(*then);
                    times[state] += spent;
                    usage.groups[group][state] += spent;
                }
            }
            usage.cpus.push(CpuUsage { cpu, times });
            usage.events += now.events - then.events;
            usage.switches += now.switches - then.switches;
            usage.resyncs += now.resyncs - then.resyncs;
            usage.unseen += now.unseen - then.unseen;
        }
        for program in usage.programs.iter().filter(|p| own.contains(&p.id)) {
            usage.own_ns += program.run_ns;
            usage.misses += program.misses;
        }
        usage
    }

    /// Nanoseconds of one state over all CPUs.
    pub fn total(&self, state: State) -> u64 {
        self.cpus.iter().map(|cpu| cpu.times[state as usize]).sum()
    }

    /// Nanoseconds that were not idle, over all CPUs.
    pub fn busy_ns(&self) -> u64 {
        let idle = self.total(State::Idle);
        self.cpus.iter().flat_map(|cpu| cpu.times).sum::<u64>() - idle
    }

    /// All softirq vectors, over all CPUs.
    pub fn softirq_ns(&self) -> u64 {
        State::ALL
            .into_iter()
            .filter(|state| *state >= State::SoftirqHi)
            .map(|state| self.total(state))
            .sum()
    }

    /// The states' sum as a percentage of the wall clock, of the CPU where it is farthest from 100.
    pub fn worst_sum_percent(&self) -> f64 {
        let percent = |cpu: &CpuUsage| {
            cpu.times.iter().sum::<u64>() as f64 * 100.0 / self.wall_ns.max(1) as f64
        };
        self.cpus
            .iter()
            .map(percent)
            .max_by(|a, b| (a - 100.0).abs().total_cmp(&(b - 100.0).abs()))
            .unwrap_or(0.0)
    }

    /// Why these figures cannot be believed. Empty when they can.
    pub fn violations(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let sum = self.worst_sum_percent();
        if (sum - 100.0).abs() > 0.5 {
            broken.push(format!("CPU states sum to {sum:.2} %"));
        }
        if self.resyncs > 0 {
            broken.push(format!("{} CPU state resyncs", self.resyncs));
        }
        if self.misses > 0 {
            broken.push(format!("{} CPU state events refused", self.misses));
        }
        broken
    }

    /// Nanoseconds by name, as records hold them: each state that was entered, `bpf` and `probes`
    /// (both part of the states) when programs were timed.
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let mut named: BTreeMap<String, f64> = State::ALL
            .into_iter()
            .map(|state| (state.name().to_owned(), self.total(state) as f64))
            .filter(|(_, ns)| *ns > 0.0)
            .collect();
        if !self.programs.is_empty() {
            let bpf: u64 = self.programs.iter().map(|program| program.run_ns).sum();
            named.insert("bpf".into(), bpf as f64);
            named.insert("probes".into(), self.own_ns as f64);
        }
        named
    }
}
