//! A capture to flows, as fast as a program can: packets per second, and per second of CPU.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use serde_json::Value;

use super::{PCAP, peers};
use crate::outcome::Outcome;
use crate::program::lowroad_command;

/// What reading a capture took.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunCost {
    pub(super) wall: Duration,
    /// Of the program and all its processes. A program that reads a file from the page cache does
    /// nothing in interrupts: here its own account is the machine's.
    pub(super) cpu: Duration,
}

/// One pass of an arm over a capture.
pub(super) fn trial(arm: &str, capture: &Path, folder: &Path) -> Result<Outcome> {
    let (packets, bytes) = size(capture)?;
    let mut outcome = Outcome::default();
    let taken = match peers::find(arm) {
        Some(peer) => peer.read(capture, folder)?,
        None => own(arm, capture, folder, packets, &mut outcome)?,
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
    capture: &Path,
    folder: &Path,
    packets: u64,
    outcome: &mut Outcome,
) -> Result<RunCost> {
    if arm != PCAP {
        bail!("{arm:?} reads no captures");
    }
    let mut command = lowroad_command(&["features", "--json", "pcap", "--schema", "nfstream.v1"]);
    command
        .arg(capture)
        .arg("-o")
        .arg(folder.join("flows.parquet"));
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
    let before = children()?;
    let started = Instant::now();
    let output = command
        .output()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let wall = started.elapsed();
    let cpu = children()?.saturating_sub(before);
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

/// CPU time of all children that have ended, and of theirs.
fn children() -> Result<Duration> {
    let usage: Usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |value: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(value.tv_sec()).unwrap_or(0);
        let micros = u64::try_from(value.tv_usec()).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}
