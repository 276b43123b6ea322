//! `lowroad replicate compact`: folds the older part of a log into the resulting tree.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use process::shutdown::Shutdown;
use replicate::log::{
    Compacting, CompactionReport, DiskUsage, Error, compact_while, foldable, seal,
};
use serde_json::json;

use crate::exit::{self, Failure, OrFail as _};

/// Interval between changes of the progress line.
const REFRESH: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Compact {
    /// Folder of the log; it may be written and read at the same time
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// First epoch to keep [default: the last one; of a log that is being written, the last one before the
    /// current segment]
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl Compact {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        // Seal the last segment, because a log without a writer can be folded completely.
        seal(&self.folder)?;
        let epoch = match self.epoch {
            Some(epoch) => Some(epoch),
            None => foldable(&self.folder, 0)?,
        };
        let Some(epoch) = epoch else {
            return self.print(None, json);
        };
        let mut refreshed = Instant::now();
        let compacted = compact_while(&self.folder, epoch, &mut |now| {
            if refreshed.elapsed() >= REFRESH && io::stderr().is_terminal() {
                refreshed = Instant::now();
                eprint!("\r\x1b[K{}", line(now));
            }
            !shutdown.requested()
        });
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        match compacted {
            // The user did not name this epoch.
            Err(Error::Compact { .. }) if self.epoch.is_none() => self.print(None, json),
            compacted => self.print(Some(compacted?), json),
        }
    }

    /// Prints the bytes saved, or that there was nothing to compact.
    fn print(&self, compacted: Option<CompactionReport>, json: bool) -> Result<(), Failure> {
        let stored = DiskUsage::of(&self.folder)?;
        let DiskUsage {
            bytes, first_epoch, ..
        } = stored;
        let (before, after) = compacted.map_or((0, 0), |done| (done.before, done.after));
        // A base has more bytes for each file than a short log.
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
            Some(CompactionReport { epoch, .. }) => exit::print(&format!(
                "first epoch {epoch}  folded {before} B to {after} B  saved {saved} B  log {bytes} B\n"
            )),
            None => exit::print(&format!("nothing to compact  log {bytes} B\n")),
        }
    }
}

fn line(now: Compacting) -> String {
    format!("read {} records  written {}", now.read, now.written)
}
