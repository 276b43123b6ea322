//! A capture to flows, as fast as a program can: packets per second, and per second of CPU.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::load::TrialSpec;
use super::{PCAP, peers};
use crate::arms::{Place, ProgramArm, ProgramProcess, Values};
use crate::outcome::Outcome;
use crate::program::{Lowroad, children_cpu};

/// The cost of reading a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunCost {
    pub(super) wall: Duration,
    /// CPU of the program and all its processes. A program that reads a file from the page cache does
    /// nothing in interrupts, so its own account is complete.
    pub(super) cpu: Duration,
}

/// One pass of an arm over a capture.
pub(super) fn trial(spec: &TrialSpec<'_>, capture: &Path, folder: &Path) -> Result<Outcome> {
    let TrialSpec { arm, lowroad, .. } = *spec;
    let (packets, bytes) = size(capture)?;
    let mut outcome = Outcome::default();
    let taken = match (spec.program, peers::find(arm)) {
        (Some(program), _) => of_program(program, capture, &mut outcome)?,
        (None, Some(peer)) => peer.read(capture, folder)?,
        (None, None) => own(arm, lowroad, (capture, packets), folder, &mut outcome)?,
    };
    outcome.counts.insert("packets".to_owned(), packets);
    outcome.counts.insert("bytes".to_owned(), bytes);
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let packets = packets as f64;
    for (name, time) in [
        ("packets_per_cpu_s", taken.cpu),
        ("packets_per_s", taken.wall),
    ] {
        let rate = packets / time.as_secs_f64();
        outcome.values.insert(name.to_owned(), rate);
    }
    Ok(outcome)
}

/// Our own reader, with the schema that has the peer's columns.
fn own(
    arm: &str,
    lowroad: &Lowroad,
    (capture, packets): (&Path, u64),
    folder: &Path,
    outcome: &mut Outcome,
) -> Result<RunCost> {
    if arm != PCAP {
        bail!("{arm:?} reads no captures");
    }
    let mut command = lowroad.command(&[]);
    command.args(arguments(capture, folder));
    let (taken, said) = timed(&mut command)?;
    let account: Value = serde_json::from_slice(&said).context("the account of a run")?;
    if account["packets"] != packets {
        outcome
            .flags
            .push(format!("read {} packets of {packets}", account["packets"]));
    }
    if account["packets_unaccounted"] != 0 || account["rows_lost"] != 0 {
        outcome.flags.push("packets or rows are lost".to_owned());
    }
    Ok(taken)
}

/// An external program, without its set-up and its tear-down.
fn of_program(program: &ProgramArm, capture: &Path, outcome: &mut Outcome) -> Result<RunCost> {
    let folder = testbed::folder()?;
    let capture = std::path::absolute(capture)?;
    let values = Values::from([("capture", vec![capture.display().to_string()])]);
    let cost = ProgramProcess::run_to_end(program, Place::Machine, values, folder.path(), outcome)?;
    Ok(RunCost {
        wall: cost.wall,
        cpu: cost.cpu,
    })
}

/// The arguments of our own reader.
pub(super) fn arguments(capture: &Path, folder: &Path) -> Vec<OsString> {
    let words = ["features", "--json", "pcap", "--schema", "nfstream.v1"];
    let words = words.into_iter().map(OsString::from);
    let out = folder.join("flows.parquet");
    words
        .chain([capture.into(), "-o".into(), out.into()])
        .collect()
}

/// Packets and bytes of a capture, which every arm is credited with alike.
fn size(capture: &Path) -> Result<(u64, u64)> {
    let name = || capture.display().to_string();
    let file = std::fs::File::open(capture).with_context(name)?;
    let mut reader = packet::pcap::Reader::new(file).with_context(name)?;
    let mut sum = (0, 0);
    while let Some(frame) = reader.read().with_context(name)? {
        sum.0 += 1;
        sum.1 += u64::from(frame.original_length);
    }
    Ok(sum)
}

/// Runs a command to its end, and says what it took and printed.
pub(super) fn timed(command: &mut std::process::Command) -> Result<(RunCost, Vec<u8>)> {
    let before = children_cpu()?;
    let started = Instant::now();
    let output = command
        .output()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let wall = started.elapsed();
    let cpu = children_cpu()?.saturating_sub(before);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().last().unwrap_or_default().to_owned();
        bail!(
            "{:?} ended with {}: {last}",
            command.get_program(),
            output.status
        );
    }
    Ok((RunCost { wall, cpu }, output.stdout))
}
