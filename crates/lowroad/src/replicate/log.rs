//! `lowroad replicate log`: the records of a log, a line each.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use replicate::log::Reader;
use replicate::record::{Change, Entry, File, Origin, Part, Record};
use serde_json::{Value, json};

use super::of_log;
use crate::exit::{self, Failure};

/// How long to wait for more.
const TICK: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(super) struct Log {
    /// The folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Wait for further records, until SIGINT or SIGTERM
    #[arg(long)]
    follow: bool,
    /// Begin with this record
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    from: u64,
}

impl Log {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut reader = Reader::open(&self.folder).map_err(|error| {
            // A name that was mistyped, most likely.
            Failure::Input(error.to_string())
        })?;
        loop {
            match reader.read().map_err(of_log)? {
                Some(located) if located.record.number < self.from => {}
                Some(located) if print(&located.record, json)? => {}
                // Nobody reads it any more, as in `| head`.
                Some(_) => return Ok(()),
                None if !self.follow || shutdown.wait(TICK) || !exit::is_read() => return Ok(()),
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
    let (what, mut rest) = describe(&record.entry);
    if !json {
        return exit::print_more(&format!("{number:>8}  {what:<10}  {}\n", words(&rest)));
    }
    rest["number"] = number.into();
    rest["at_ns"] = at_ns.into();
    rest["record"] = what.into();
    exit::print_more(&format!("{rest}\n"))
}

/// `key value` of each member.
fn words(members: &Value) -> String {
    let members = members.as_object().into_iter().flatten();
    let words = members.map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    });
    words.collect::<Vec<_>>().join("  ")
}

/// What the entry is called, and what it says.
fn describe(entry: &Entry) -> (&'static str, Value) {
    match entry {
        Entry::Start { root } => ("start", json!({ "root": root.to_string() })),
        Entry::Epoch { number } => ("epoch", json!({ "epoch": number })),
        Entry::Patterns(patterns) => (
            "patterns",
            json!({ "include": patterns.include, "exclude": patterns.exclude }),
        ),
        Entry::Change(change) => change_of(change),
    }
}

fn change_of(change: &Change) -> (&'static str, Value) {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let id = File::to_string;
    match change {
        Change::New { file, kind } => {
            ("new", json!({ "file": id(file), "kind": kind.to_string() }))
        }
        Change::Gone { file } => ("gone", json!({ "file": id(file) })),
        Change::Attributes { file, attributes } => (
            "attributes",
            json!({
                "file": id(file), "mode": format!("{:04o}", attributes.mode),
                "uid": attributes.uid, "gid": attributes.gid, "modified_ns": attributes.modified_ns,
            }),
        ),
        Change::Extended { file, all } => {
            let names: Vec<String> = all.iter().map(|(name, _)| text(name)).collect();
            ("extended", json!({ "file": id(file), "names": names }))
        }
        Change::Link {
            directory,
            name,
            file,
        } => (
            "link",
            json!({ "file": id(file), "directory": id(directory), "name": text(name.as_bytes()) }),
        ),
        Change::Unlink { directory, name } => (
            "unlink",
            json!({ "directory": id(directory), "name": text(name.as_bytes()) }),
        ),
        Change::Data {
            file,
            offset,
            bytes,
            origin,
        } => {
            let origin = match origin {
                Origin::Exact => "exact",
                Origin::ReadBack => "read-back",
            };
            let length = bytes.len();
            let said =
                json!({ "file": id(file), "offset": offset, "bytes": length, "origin": origin });
            ("data", said)
        }
        Change::Size { file, size } => ("size", json!({ "file": id(file), "size": size })),
        Change::Hole {
            file,
            offset,
            length,
        } => (
            "hole",
            json!({ "file": id(file), "offset": offset, "bytes": length }),
        ),
        Change::Doubt { file, part } => ("doubt", part_of(file, part)),
        Change::Settled { file, part } => ("settled", part_of(file, part)),
    }
}

fn part_of(file: &File, part: &Part) -> Value {
    let file = file.to_string();
    match part {
        Part::Range { offset, length } => {
            json!({ "file": file, "part": "bytes", "offset": offset, "bytes": length })
        }
        Part::Attributes => json!({ "file": file, "part": "attributes" }),
        Part::Names => json!({ "file": file, "part": "names" }),
    }
}
