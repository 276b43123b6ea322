//! How soon the machines of trials are there, where this machine has them.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testbed::{Bed, HostSpec, Kind, Program, Stream, Topology};

use super::{Check, go_on};

const CONTAINER: Duration = Duration::from_millis(100);
/// An emulated one too.
const VIRTUAL_MACHINE: Duration = Duration::from_secs(15);
/// A guest that does not boot is waited for.
const KVM: Duration = Duration::from_secs(10);
/// More would tell nothing new of what takes seconds.
const BOOTS: usize = 3;

pub(super) fn check(containers: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    if is_here("oci")? {
        let taken = median_up("oci", containers, stop)?;
        checks.push(soon_enough(
            "a program runs in a container (median)",
            taken,
            CONTAINER,
        ));
    }
    // It gets the kernel, if need be.
    if is_here("vm")? {
        go_on(stop)?;
        let begun = Instant::now();
        let found = testbed::machine()
            .into_iter()
            .find(|(name, _)| *name == "kvm");
        let name = match found.context("KVM is asked for")?.1 {
            Ok(()) => "KVM is found to be of use",
            Err(_) => "KVM is found to be of no use",
        };
        checks.push(soon_enough(name, begun.elapsed(), KVM));
        let taken = median_up("vm", BOOTS.min(containers), stop)?;
        checks.push(soon_enough(
            "a program runs in a virtual machine (median)",
            taken,
            VIRTUAL_MACHINE,
        ));
    }
    Ok(checks)
}

fn is_here(environment: &str) -> Result<bool> {
    let kind = Kind::find(environment).context("a known environment")?;
    Ok((kind.probe)().is_ok())
}

/// Until a program has run there: some machines are made for their first one. Taking it down is not part of it.
fn median_up(environment: &str, times: usize, stop: &AtomicBool) -> Result<Duration> {
    let mut topology = Topology::default();
    topology
        .host
        .insert("host".to_owned(), HostSpec::of(environment));
    let mut taken = Vec::new();
    for _ in 0..times {
        go_on(stop)?;
        let begun = Instant::now();
        let bed = Bed::up(&topology, "up")?;
        let program = Program::new(testbed::agent()?)
            .args(["--version"])
            .stdout(Stream::Null);
        let ended = bed.host("host")?.start(program)?.wait()?;
        taken.push(begun.elapsed().as_secs_f64());
        ensure!(
            ended.success(),
            "a program in {environment} ends with {ended}"
        );
        drop(bed);
    }
    let median = stats::median(&taken).context("none was made")?;
    Ok(Duration::from_secs_f64(median))
}

fn soon_enough(name: &str, taken: Duration, goal: Duration) -> Check {
    let goal_said = format!("at most {goal:?}");
    Check::new(
        name,
        &goal_said,
        format!("{:.0} ms", taken.as_secs_f64() * 1e3),
        taken <= goal,
    )
}
