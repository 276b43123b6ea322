//! `lowroad replicate restore`: restores the tree of an epoch to a new folder.

use std::path::PathBuf;

use clap::Args;
use replicate::epochs;
use replicate::restore::{self, Options, RestoreReport};
use serde_json::json;
use units::{Span, Timestamp};

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Restore {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Restore to this directory, which is new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Restore this epoch [default: the last one]
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
    /// Restore the last epoch that is not later than this time, as in 2026-11-28T10:15:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "epoch")]
    at: Option<Timestamp>,
    /// Restore the last epoch that is at least this old, as in 10m
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["epoch", "at"])]
    ago: Option<Span>,
    /// Also restore device nodes, set-user-ID and set-group-ID bits, and extended attributes other than
    /// `user.`
    #[arg(long)]
    privileged: bool,
}

impl Restore {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let options = Options {
            privileged: self.privileged,
        };
        let restored = restore::restore(&self.folder, self.chosen()?, &self.out, options);
        let restored = restored?;
        let text = if json {
            object(&restored)
        } else {
            words(&restored)
        };
        exit::print(&format!("{text}\n"))
    }

    /// The requested epoch. `None` for the last one.
    fn chosen(&self) -> Result<Option<u64>, Failure> {
        let now = Timestamp::now();
        let at = match (self.at, self.ago) {
            (Some(at), _) => at,
            (None, Some(Span(ago))) => now.before(ago),
            (None, None) => return Ok(self.epoch),
        };
        Ok(Some(epochs::at(&self.folder, at, now)?))
    }
}

fn words(restored: &RestoreReport) -> String {
    let RestoreReport {
        epoch,
        at_ns,
        names,
        bytes,
        ..
    } = restored;
    let at = Timestamp(*at_ns);
    let mut text = format!("epoch {epoch}  at {at}  names {names}  bytes {bytes}");
    let left = [
        ("owners", restored.owners_left),
        ("device nodes", restored.devices_left),
        ("set-ID bits", restored.set_id_left),
        ("extended attributes", restored.extended_left),
        ("names", restored.names_left),
        ("times", restored.times_left),
    ];
    for (what, count) in left.into_iter().filter(|(_, count)| *count > 0) {
        text += &format!("  without {count} {what}");
    }
    text
}

fn object(restored: &RestoreReport) -> String {
    json!({
        "epoch": restored.epoch,
        "at": Timestamp(restored.at_ns).to_string(),
        "names": restored.names,
        "bytes": restored.bytes,
        "left": {
            "owners": restored.owners_left,
            "devices": restored.devices_left,
            "set_id": restored.set_id_left,
            "extended_attributes": restored.extended_left,
            "names": restored.names_left,
            "times": restored.times_left,
        },
    })
    .to_string()
}
