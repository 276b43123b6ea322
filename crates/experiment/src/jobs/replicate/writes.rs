//! A trial of writes: what one takes, and what it costs the machine.

use anyhow::{Context, Result};

use super::arm::Follower;
use super::load::{self, Load};
use super::writer::Writer;
use super::{ReplicateBench, cost};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// Writes before the measured ones: the file has all its pages then.
const WARM_UP: u64 = 2000;

pub(super) fn trial(
    bench: &ReplicateBench,
    follower: Follower<'_>,
    load: &Load,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let size = load.payload.context("writes of a size")?.length();
    let writes = load::count(load, load::WRITES) as u64;
    let idle = cost::before()?;
    let folders = bench.disk.folders()?;
    let mut running = follower.start(&folders)?;
    let own = std::fs::read_link("/proc/self/exe")?;
    let file = running.work().join("file");
    let mut writer = Writer::start(follower.arm.wrap(&own, folders.out()), file, folders.out())?;
    writer.write(size, WARM_UP)?;
    let pids: Vec<u32> = writer.pids().into_iter().chain(running.pids()).collect();

    let watch = Watch::start(&bench.foreign, &pids)?;
    let written = writer.write(size, writes)?;
    watch.end(&pids, &mut outcome)?;

    let work = || writer.write(size, writes).map(drop);
    let spent = cost::of(work, folders.out(), &idle, &mut outcome)?;
    drop(writer);
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let each = spent / writes.max(1) as f64;
    for (name, value) in [
        ("pwrite_ns", written.mean),
        ("pwrite_ns_median", written.median),
        ("pwrite_ns_p95", written.p95),
        ("cpu_ns_per_write", each),
    ] {
        outcome.values.insert(name.to_owned(), value);
    }
    outcome.counts.insert("writes".to_owned(), writes);
    let bytes = (WARM_UP + 2 * writes) * size as u64;
    running.note(&mut outcome)?;
    cost::end(follower.arm, running, &folders, bytes, &mut outcome)?;
    Ok(outcome)
}
