//! `lowroad replicate compact`: the older part of a log, folded into the tree that it leads to.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use replicate::log::{Compacted, Compacting, Error, Stored, compact_while, foldable, seal};
use serde_json::json;

use super::of_log;
use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Compact {
    /// The folder of the log, which may be written to and read meanwhile
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The first epoch to keep, with all that follow it; the last one that can be if none is named: of a log that is
    /// being written, the last before the segment that is
    #[arg(long, value_name = "NUMBER")]
    epoch: Option<u64>,
}

impl Compact {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        // Who compacts a log that nobody writes may fold all of it.
        seal(&self.folder).map_err(failure)?;
        let epoch = match self.epoch {
            Some(epoch) => Some(epoch),
            None => foldable(&self.folder, 0).map_err(failure)?,
        };
        let Some(epoch) = epoch else {
            return self.say(None, json);
        };
        let mut shown = Instant::now();
        let compacted = compact_while(&self.folder, epoch, &mut |now| {
            if shown.elapsed() >= SHOWN && io::stderr().is_terminal() {
                shown = Instant::now();
                eprint!("\r\x1b[K{}", line(now));
            }
            !shutdown.requested()
        });
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        match compacted {
            // Nobody has asked for this one.
            Err(Error::Compact { .. }) if self.epoch.is_none() => self.say(None, json),
            compacted => self.say(Some(compacted.map_err(failure)?), json),
        }
    }

    /// What was saved; of none, that there was nothing to save.
    fn say(&self, compacted: Option<Compacted>, json: bool) -> Result<(), Failure> {
        let stored = Stored::of(&self.folder).map_err(failure)?;
        let Stored {
            bytes, first_epoch, ..
        } = stored;
        let (before, after) = compacted.map_or((0, 0), |done| (done.before, done.after));
        // A base that holds little has more to say of each file than its log had.
        let saved = i128::from(before) - i128::from(after);
        if json {
            return exit::print(&format!(
                "{}\n",
                json!({
                    "compacted": compacted.is_some(),
                    "first_epoch": first_epoch,
                    "folded_bytes": before,
                    "base_bytes": after,
                    "saved_bytes": i64::try_from(saved).unwrap_or_default(),
                    "log_bytes": bytes,
                })
            ));
        }
        match compacted {
            Some(Compacted { epoch, .. }) => exit::print(&format!(
                "first epoch {epoch}  folded {before} B to {after} B  saved {saved} B  log {bytes} B\n"
            )),
            None => exit::print(&format!("nothing to compact  log {bytes} B\n")),
        }
    }
}

fn line(now: Compacting) -> String {
    format!("read {} records  written {}", now.read, now.written)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::NoEpoch { .. }
        | Error::Written { .. }
        | Error::Compact { .. }
        | Error::Damaged { .. } => Failure::Input(error.to_string()),
        Error::Io { ref source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Failure::Input(error.to_string())
        }
        failed => of_log(failed),
    }
}
