//! `lowroad replicate log`: lists the records of a log, one per line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use process::shutdown::Shutdown;
use replicate::log::Reader;
use replicate::record::{Members, Record};
use serde_json::Value;

use crate::exit::{self, Failure, OrFail as _};

/// The interval between checks for more records.
const TICK: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(super) struct Log {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Wait for further records, until SIGINT or SIGTERM
    #[arg(long)]
    follow: bool,
    /// Start at this record
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
}

impl Log {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut reader = Reader::open_log(&self.folder)?;
        loop {
            // Damage in a log that could be opened is a failure, not a wrong argument.
            match reader.read().or_fail()? {
                Some(located) if located.record.number < self.from => {}
                Some(located) if print(&located.record, json)? => {}
                // The output was closed, as by `| head`.
                Some(_) => return Ok(()),
                None if !self.follow || shutdown.wait(TICK) || !exit::has_reader() => return Ok(()),
                None => {}
            }
            if shutdown.requested() {
                return Ok(());
            }
        }
    }
}

fn print(record: &Record, json: bool) -> Result<bool, Failure> {
    let (number, at_ns) = (record.number, record.at_ns);
    let (what, mut members) = record.entry.describe();
    if !json {
        return exit::print_more(&format!("{number:>8}  {what:<10}  {}\n", words(&members)));
    }
    let common = [
        ("number", number.into()),
        ("at_ns", at_ns.into()),
        ("record", what.into()),
    ];
    members.extend(common.map(|(name, value)| (name.to_owned(), value)));
    exit::print_more(&format!("{}\n", Value::Object(members)))
}

/// The fields as `key value`.
fn words(members: &Members) -> String {
    let words = members.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    });
    words.collect::<Vec<_>>().join("  ")
}
