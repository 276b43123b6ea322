//! A trial of lag: how long after a write its copies have it, and what that costs the machine.

use std::path::Path;

use anyhow::{Context, Result};

use super::chain::{Chain, Source};
use super::load::{self, Load};
use super::steady::{Observations, PLACES, WriteLoad, quantile};
use super::{ReplicateBench, cost, tree};
use crate::account::{CAPTURE, accountant, of_group, spent, watch};
use crate::noise::Watch;
use crate::outcome::Outcome;

pub(super) fn trial(bench: &ReplicateBench, source: Source<'_>, load: &Load) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let number = |option| load::count(load, option) as u64;
    let steady = WriteLoad {
        size: load.payload.context("writes of a size")?.length(),
        files: number(load::FILES).max(1),
        rate: number(load::RATE).max(1),
        sync: number(load::SYNC),
    };
    let lasts = u64::try_from(load.duration.0.as_micros())?;
    let writes = (lasts * steady.rate / 1_000_000).max(1);
    let copies = load::count(load, load::COPIES).max(1);
    let idle = cost::before()?;
    let folders = bench.disk.folders()?;
    let scratch = bench.disk.scratch()?;
    steady.fill(folders.tree())?;
    let in_place = load::in_place(load);
    let between = (folders.tree(), scratch.path());
    let mut chain = Chain::start(source, between, copies, in_place)?;
    let pids = chain.pids();

    let machine = Watch::start(&bench.foreign, &pids)?;
    let seen = steady.run(folders.tree(), &chain.trees, PLACES + 1, writes)?;
    machine.end(&pids, &mut outcome)?;
    note(bench, &seen, &steady, &mut outcome);

    let accountant = accountant()?;
    for task in chain.source() {
        accountant.choose(task, CAPTURE)?;
    }
    let first = PLACES + 1 + writes;
    let work = || steady.run(folders.tree(), &chain.trees, first, writes);
    let (usage, _) = watch(&accountant, work)?;
    outcome.cpu = usage.by_name();
    outcome.violations.extend(usage.violations());
    for (name, ns) in [
        ("cpu_us_per_write", spent(&usage, &idle)),
        ("source_cpu_us_per_write", of_group(&usage, CAPTURE)),
    ] {
        let each = ns / 1e3 / float(writes);
        outcome.values.insert(name.to_owned(), each);
    }

    compare(folders.tree(), &chain, &mut outcome)?;
    chain.note(&mut outcome)?;
    let of_program = chain.is_program();
    let account = chain.stop()?;
    let said = |name: &str| account.capture[name].as_u64().unwrap_or(0);
    let written = (PLACES + 2 * writes) * steady.size as u64;
    // The bytes that an external program sends are not known.
    if !of_program {
        let name = "sent_bytes_per_byte".to_owned();
        let each = float(account.sent) / float(written);
        outcome.values.insert(name, each);
    }
    for (name, count) in [
        ("writes", writes),
        ("copies", copies as u64),
        ("events", said("events")),
        ("epochs", said("epoch")),
        ("dropped", said("dropped")),
        ("sent_bytes", account.sent),
    ] {
        outcome.counts.insert(name.to_owned(), count);
    }
    outcome
        .environment
        .insert("capture".to_owned(), account.capture);
    Ok(outcome)
}

/// How late copies were: all of them together, and the one that is latest.
fn note(bench: &ReplicateBench, seen: &Observations, steady: &WriteLoad, outcome: &mut Outcome) {
    let copies = seen.lags();
    let worst = copies.iter().map(|lags| quantile(lags, 0.5)).max();
    let mut all = copies.concat();
    all.sort_unstable();
    for (name, ns) in [
        ("lag_ms_p50", quantile(&all, 0.5)),
        ("lag_ms_p99", quantile(&all, 0.99)),
        ("worst_lag_ms_p50", worst.unwrap_or(0)),
    ] {
        outcome.values.insert(name.to_owned(), float(ns) / 1e6);
    }
    let late = seen.late(1.0 - bench.monitor.late_share());
    let name = "lateness_outside_p99_us".to_owned();
    outcome.noise.insert(name, float(seen.late(0.99)) / 1e3);
    if late > (100_000_000 / steady.rate).max(20_000) {
        let late = late / 1000;
        let what = format!("the writer late by {late} us or more outside its writes");
        outcome.flags.push(what);
    }
}

/// Each copy has the tree's bytes.
fn compare(source: &Path, chain: &Chain, outcome: &mut Outcome) -> Result<()> {
    let mut differing = 0;
    for copy in &chain.trees {
        differing += tree::between(source, copy)?;
    }
    let name = "bytes_differing".to_owned();
    outcome.values.insert(name, float(differing));
    if differing > 0 {
        outcome.flags.push(format!("{differing} bytes differ"));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a quotient")]
fn float(count: u64) -> f64 {
    count as f64
}
