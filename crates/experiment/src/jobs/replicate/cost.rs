//! The cost of a load on the whole machine, from its first byte until the arm has logged its last.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use probes::account::Usage;
use serde_json::Value;

use super::arm::{self, Arm, RunningArm};
use super::memory_disk::TrialFolders;
use super::tree;
use crate::account::{accountant, idle, spent, watch};
use crate::outcome::Outcome;

/// An arm that writes nothing down for so long is done: a journal is read after 200 ms, and a sync of
/// the log may take as long.
const QUIET: Duration = Duration::from_millis(600);
const TICK: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(60);

/// The usage of the machine before anything is started.
pub(super) fn before() -> Result<Usage> {
    idle(&accountant()?)
}

/// Nanoseconds of all CPUs that `work` made the machine spend, beyond what it does when `idle`.
pub(super) fn of(
    work: impl FnOnce() -> Result<()>,
    out: &Path,
    idle: &Usage,
    outcome: &mut Outcome,
) -> Result<f64> {
    let accountant = accountant()?;
    let (usage, ()) = watch(&accountant, || {
        work()?;
        rest(out)
    })?;
    outcome.cpu = usage.by_name();
    outcome.violations.extend(usage.violations());
    let sum = usage.worst_sum_percent();
    outcome.noise.insert("cpu_sum_pct".to_owned(), sum);
    Ok(spent(&usage, idle))
}

/// Waits until the arm has written down what it saw.
fn rest(out: &Path) -> Result<()> {
    let begun = Instant::now();
    let mut last = (arm::written(out), begun);
    while last.1.elapsed() < QUIET {
        thread::sleep(TICK);
        let written = arm::written(out);
        if written != last.0 {
            last = (written, Instant::now());
        }
        if begun.elapsed() > TIMEOUT {
            bail!("it still writes after {} s", TIMEOUT.as_secs());
        }
    }
    Ok(())
}

/// Ends the arm, and notes its account. `bytes` is what was written to the tree.
pub(super) fn end(
    of: Arm,
    running: RunningArm,
    folders: &TrialFolders,
    bytes: u64,
    outcome: &mut Outcome,
) -> Result<()> {
    let lowroad = running.lowroad().clone();
    let account = running.stop()?;
    let written = arm::written(folders.out());
    outcome.counts.insert("log_bytes".to_owned(), written);
    #[expect(clippy::cast_precision_loss, reason = "a quotient")]
    let each = written as f64 / bytes.max(1) as f64;
    let name = "log_bytes_per_byte".to_owned();
    outcome.values.insert(name, each);
    let Some(account) = account else {
        return Ok(());
    };
    note(&account, bytes, outcome);
    outcome.environment.insert("capture".to_owned(), account);
    if of.is_own() {
        let differing = tree::differing(&lowroad, folders)?;
        #[expect(clippy::cast_precision_loss, reason = "a count of bytes")]
        let value = differing as f64;
        outcome.values.insert("bytes_differing".to_owned(), value);
        if differing > 0 {
            outcome.flags.push(format!("{differing} bytes differ"));
        }
    }
    Ok(())
}

/// Shares of what was seen and what was not.
fn note(account: &Value, bytes: u64, outcome: &mut Outcome) {
    let count = |name: &str| account[name].as_u64().unwrap_or(0);
    let (seen, dropped) = (count("events"), count("dropped"));
    let back = count("read_back_bytes");
    outcome.counts.insert("events".to_owned(), seen);
    outcome.counts.insert("dropped".to_owned(), dropped);
    outcome.counts.insert("read_back_bytes".to_owned(), back);
    #[expect(clippy::cast_precision_loss, reason = "shares")]
    for (name, part, whole) in [
        ("dropped_pct", dropped, seen + dropped),
        ("read_back_pct", back, bytes),
    ] {
        let share = 100.0 * part as f64 / whole.max(1) as f64;
        outcome.values.insert(name.to_owned(), share);
    }
}
