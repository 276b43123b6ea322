//! A CPU trial: what a delivery costs the whole machine, softirq included, less what the machine
//! does when idle and what the generator itself costs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use probes::account::State;
use probes::delay::MatchKey;
use probes::ps;
use probes::stacks::{HERTZ, Sampler};
use report::record::Stacks;
use sys::energy::Meter;

use super::RelayBench;
use super::delay::{generate, probe, run_id};
use super::losses::Losses;
use super::stage::Stage;
use crate::account::{accountant, foreground, idle, spent, watch};
use crate::jobs::relay::load::TrialSpec;
use crate::noise::Watch;
use crate::outcome::Outcome;

const DRAIN: Duration = Duration::from_millis(200);

pub(super) fn trial(bench: &RelayBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let accountant = accountant()?;
    // Before the relay starts: a busy-polling one is never idle.
    let idle = idle(&accountant)?;
    let stage = Stage::set(&bench.layout(spec))?;
    let run = run_id(spec.seed);
    generate(bench, &stage, spec.load, run ^ 1, Some(64))?;
    let probe = probe(&stage, MatchKey::Lowroad { run }, false, 1 << 16)?;
    let pids = stage.relay_pids();
    let losses = Losses::watch(&stage)?;
    let mut outcome = Outcome::default();
    let noise = Watch::start(&bench.foreign, &pids)?;
    let ps_before = ps_ns(&pids)?;
    let energy = Meter::start();
    let (usage, sent) = watch(&accountant, || {
        generate(bench, &stage, spec.load, run, None)
    })?;
    let energy_uj = energy.and_then(|meter| meter.microjoules());
    let ps_spent = ps_ns(&pids)? - ps_before;
    noise.end(&pids, &mut outcome)?;
    probe.settle(sent.sent * spec.load.subscribers as u64, DRAIN)?;
    let report = probe.report(None)?;
    let deliveries: u64 = report.subscribers.iter().map(|s| s.unique).sum();
    ensure!(deliveries > 0, "nothing was delivered");

    let mut value = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    let each = deliveries as f64;
    let (user, softirq) = (foreground(&usage, State::User), usage.softirq_ns() as f64);
    let bpf: u64 = usage.programs.iter().map(|program| program.run_ns).sum();
    value("cpu_ns_per_delivery", spent(&usage, &idle) / each);
    if let Some(energy_uj) = energy_uj {
        value("energy_uj_per_delivery", energy_uj as f64 / each);
    }
    value("cpu_ns_per_delivery_user", user / each);
    value("cpu_ns_per_delivery_softirq", softirq / each);
    value(
        "cpu_ns_per_delivery_bpf",
        bpf.saturating_sub(usage.own_ns) as f64 / each,
    );
    value(
        "ps_cpu_pct",
        100.0 * ps_spent as f64 / usage.wall_ns.max(1) as f64,
    );
    outcome.cpu = usage.by_name();
    outcome.violations.extend(usage.violations());
    outcome.violations.extend(report.violations());
    for (name, count) in report.counts() {
        outcome.counts.insert(name.to_owned(), count);
    }
    losses.note(&mut outcome)?;
    for (name, value) in [
        ("cpu_sum_pct", usage.worst_sum_percent()),
        ("cpu_unseen_switches", usage.unseen as f64),
    ] {
        outcome.noise.insert(name.to_owned(), value);
    }
    // Sampling costs time of its own: it has a window of its own.
    outcome.stacks = Some(sampled(bench, &stage, spec)?);
    Ok((stage, outcome))
}

/// Which functions the load's time goes to, over every CPU.
fn sampled(bench: &RelayBench, stage: &Stage, spec: &TrialSpec<'_>) -> Result<Stacks> {
    let sampler = Sampler::start(HERTZ)?;
    generate(bench, stage, spec.load, run_id(spec.seed) ^ 1, None)?;
    let profile = sampler.stop()?;
    Ok(Stacks {
        obtained: profile.obtained,
        expected: profile.expected,
        folded: profile.folded,
    })
}

fn ps_ns(pids: &[u32]) -> Result<u64> {
    pids.iter()
        .map(|&pid| ps::cpu_ns(pid).context("reading what ps reads"))
        .sum()
}
