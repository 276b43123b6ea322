//! A CPU trial: what a packet costs the whole machine, from the link to its flow's row. Twice: by the
//! accountant's tracepoints, which add to what they measure, and without them, by what the scheduler
//! says of the two threads that the work is in.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use loadgen::{Amount, SendReport};
use probes::account::Usage;
use probes::ps;
use probes::stacks::{HERTZ, Sampler};
use report::record::Stacks;
use sys::energy::Meter;

use super::capture::Rows;
use super::origin;
use super::stage::{Stage, ran_ns};
use super::tree::Tree;
use crate::account::{CAPTURE, RECEIVE, accountant, idle, of_group, spent, watch};
use crate::jobs::features::FeaturesBench;
use crate::jobs::features::load::{Link, Load, TrialSpec};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// Time for what has come in to be taken, by captures that look now and then.
const SETTLE: Duration = Duration::from_millis(30);
/// The load's first part, which is not measured.
const WARM_UP: Duration = Duration::from_millis(50);

const MAX_SAMPLING_TIME: Duration = Duration::from_secs(1);
/// The programs of features and of the floor; the first runs beside packets, the others for each packet.
const PROGRAMS: [&str; 4] = ["evict_flows", "count_flows", "record_packets", "count"];

pub(super) fn trial(bench: &FeaturesBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let accountant = accountant()?;
    let idle = idle(&accountant)?;
    let mut stage = Stage::set(bench.cpus(), spec, Rows::File)?;
    let pids = stage.pids();
    for (&task, group) in pids
        .iter()
        .zip(std::iter::repeat(CAPTURE))
        .chain(stage.napi().iter().zip([RECEIVE]))
    {
        accountant.choose(task, group)?;
    }
    send(&stage, spec.load, WARM_UP)?;
    let mut outcome = Outcome::default();
    let noise = Watch::start(&bench.foreign, &pids)?;
    let ps_before = ps_ns(&pids)?;
    let energy = Meter::start();
    let (usage, sent) = watch(&accountant, || {
        send(&stage, spec.load, spec.load.duration.0)
    })?;
    let energy_uj = energy.and_then(|meter| meter.microjoules());
    let ps_spent = ps_ns(&pids)? - ps_before;
    drop(accountant);
    let threads = threads(&stage, spec.load)?;
    noise.end(&pids, &mut outcome)?;
    if spec.load.link == Link::Loopback {
        origin::note(&stage, spec, &usage, &mut outcome)?;
    }
    bench
        .monitor
        .note_generator(&sent, spec.load.rate, &mut outcome);
    outcome.stacks = Some(sample_stacks(&stage, spec.load)?);
    note_memory(&mut stage, &mut outcome)?;
    stage.finish(&mut outcome)?;
    compare_answers(&stage, spec, &mut outcome)?;

    // Lost packets cost CPU, too, but the cost is charged to those that arrived.
    let came = 1.0 - outcome.values["loss_pct"] / 100.0;
    let each = sent.sent as f64 * came;
    ensure!(each > 0.0, "no packet came");
    let mut value = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    value("cpu_ns_per_packet", spent(&usage, &idle) / each);
    let receive = of_group(&usage, RECEIVE) + usage.softirq_ns() as f64;
    value(
        "cpu_ns_per_packet_process",
        of_group(&usage, CAPTURE) / each,
    );
    value("cpu_ns_per_packet_receive", receive / each);
    value(
        "cpu_ns_per_packet_bpf",
        run_totals(&usage, &PROGRAMS).run_ns as f64 / each,
    );
    let program = run_totals(&usage, &PROGRAMS[1..]);
    if program.runs > 0 {
        let each_run = program.run_ns as f64 / program.runs as f64;
        value("program_ns_per_packet", each_run);
    }
    if let Some((ns, sent)) = threads {
        value("threads_ns_per_packet", ns as f64 / (sent as f64 * came));
    }
    value(
        "cpu_pct",
        100.0 * spent(&usage, &idle) / usage.wall_ns.max(1) as f64,
    );
    value("offered_pps", sent.achieved_pps);
    if let Some(energy_uj) = energy_uj {
        value("energy_uj_per_packet", energy_uj as f64 / each);
    }
    value(
        "ps_cpu_pct",
        100.0 * ps_spent as f64 / usage.wall_ns.max(1) as f64,
    );
    outcome.cpu = usage.by_name();
    outcome.violations.extend(usage.violations());
    for (name, value) in [
        ("cpu_sum_pct", usage.worst_sum_percent()),
        ("cpu_unseen_switches", usage.unseen as f64),
    ] {
        outcome.noise.insert(name.to_owned(), value);
    }
    Ok((stage, outcome))
}

fn note_memory(stage: &mut Stage, outcome: &mut Outcome) -> Result<()> {
    let memory = stage.process().map(|process| process.memory());
    if let Some(bytes) = memory.transpose()?.flatten() {
        let mib = bytes as f64 / f64::from(1 << 20);
        outcome.values.insert("memory_mib".to_owned(), mib);
    }
    Ok(())
}

/// How long and how often programs ran.
struct RunTotals {
    run_ns: u64,
    runs: u64,
}

fn run_totals(usage: &Usage, names: &[&str]) -> RunTotals {
    let programs = usage.programs.iter();
    let named = programs.filter(|program| names.contains(&program.name.as_str()));
    named.fold(RunTotals { run_ns: 0, runs: 0 }, |sum, program| RunTotals {
        run_ns: sum.run_ns + program.run_ns,
        runs: sum.runs + program.runs,
    })
}

/// Where a model is asked in the kernel, notes of how many flows it says another thing in userspace.
fn compare_answers(stage: &Stage, spec: &TrialSpec<'_>, outcome: &mut Outcome) -> Result<()> {
    let Some(tree) = Tree::of(spec.arm) else {
        return Ok(());
    };
    stage.take_rows()?;
    let answers = &outcome.environment["capture"]["model"];
    if let Some(differing) = tree.differing(stage.folder(), answers)? {
        if differing > 0 {
            let what =
                format!("{differing} flows have another class in the kernel than in userspace");
            outcome.flags.push(what);
        }
        let name = "classes_differing".to_owned();
        outcome.counts.insert(name, differing);
    }
    Ok(())
}

/// Sends a part of a load, and gives what looks now and then the time to look.
fn send(stage: &Stage, load: &Load, time: Duration) -> Result<SendReport> {
    let sent = stage.generate(load, Amount::Time(time))?;
    thread::sleep(SETTLE);
    Ok(sent)
}

/// Which functions the load's time goes to, over every CPU; in a window of its own, as sampling costs
/// time.
fn sample_stacks(stage: &Stage, load: &Load) -> Result<Stacks> {
    let sampler = Sampler::start(HERTZ)?;
    send(stage, load, (load.duration.0 / 2).min(MAX_SAMPLING_TIME))?;
    let profile = sampler.stop()?;
    Ok(Stacks {
        obtained: profile.obtained,
        expected: profile.expected,
        folded: profile.folded,
    })
}

/// The CPU time of the NAPI thread and of the capture's threads under a load, and its packets; `None`
/// without a NAPI thread, when the interrupted task does its work.
fn threads(stage: &Stage, load: &Load) -> Result<Option<(u64, u64)>> {
    let Some(napi) = stage.napi() else {
        return Ok(None);
    };
    let tasks: Vec<PathBuf> = std::iter::once(napi)
        .chain(stage.tasks()?)
        .map(|task| PathBuf::from(format!("/proc/{task}")))
        .collect();
    let ran = || -> Result<u64> { tasks.iter().map(|task| ran_ns(task)).sum() };
    let before = ran()?;
    let sent = send(stage, load, load.duration.0)?;
    Ok(Some((ran()?.saturating_sub(before), sent.sent)))
}

fn ps_ns(pids: &[u32]) -> Result<u64> {
    pids.iter()
        .map(|&pid| Ok(ps::cpu_ns(pid)?))
        .sum::<Result<u64>>()
}
