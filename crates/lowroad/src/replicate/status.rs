//! `lowroad replicate status`: shows the state of the parts of a `run`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use control::Client;
use replicate::service::config::CONTROL;
use serde_json::Value;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Status {
    /// Control socket of the `run`
    #[arg(long, value_name = "PATH", default_value = CONTROL)]
    control: PathBuf,
}

impl Status {
    pub(super) fn run(self, json: bool) -> Result<(), Failure> {
        let mut client = Client::connect(self.control)?;
        let answer = client.call("status", Value::Null)?;
        if json {
            return exit::print(&format!("{answer:#}\n"));
        }
        exit::print(&text(&answer))
    }
}

/// One line for each part, followed by its problems.
pub(super) fn text(answer: &Value) -> String {
    let mut text = String::new();
    for part in answer["parts"].as_array().into_iter().flatten() {
        let (name, state) = (word(&part["name"]), word(&part["state"]));
        let _ = write!(text, "{name}  {state}");
        for (what, unit) in [
            ("number", ""),
            ("epoch", ""),
            ("lag_records", " records"),
            ("lag_ms", " ms"),
        ] {
            if let Some(number) = part[what].as_u64() {
                let what = match what {
                    "number" => "record",
                    "lag_records" | "lag_ms" => "lag",
                    other => other,
                };
                let _ = write!(text, "  {what} {number}{unit}");
            }
        }
        let _ = write!(text, "{}", counts(part));
        for (what, words) in [
            ("log_bytes", "log bytes"),
            ("log_first_epoch", "from epoch"),
        ] {
            if let Some(number) = part[what].as_u64() {
                let _ = write!(text, "  {words} {number}");
            }
        }
        let _ = writeln!(text);
        let _ = write!(text, "{}", rescanned(&part["counts"]["rescan"], "  "));
        for replica in part["counts"]["replicas"].as_array().into_iter().flatten() {
            let (name, address) = (word(&replica["name"]), word(&replica["address"]));
            let (records, ms) = (&replica["lag_records"], &replica["lag_ms"]);
            let _ = writeln!(
                text,
                "  replica {name}  {address}  record {}  lag {records} records  lag {ms} ms",
                replica["number"]
            );
        }
        if let Some(check) = part["counts"]["check"].as_object() {
            let counts = ["rounds", "differences", "mended", "undecided"]
                .map(|what| format!("  {what} {}", check.get(what).unwrap_or(&Value::Null)));
            let _ = writeln!(text, "  check{}", counts.concat());
        }
        let _ = write!(text, "{}", bounded(&part["counts"]["bounded"]));
        let _ = write!(text, "{}", open(&part["counts"]["open"]));
        for path in part["counts"]["stale"].as_array().into_iter().flatten() {
            let _ = writeln!(text, "  stale  {}", word(path));
        }
        if let Some(trouble) = part["trouble"].as_str() {
            let _ = writeln!(text, "  {trouble}");
        }
    }
    text
}

/// The results of comparing the tree with a continued log, in a line after `before`. Empty for a
/// new log.
pub(super) fn rescanned(rescan: &Value, before: &str) -> String {
    if rescan.is_null() {
        return String::new();
    }
    let which = match rescan["by_journal"].as_bool() {
        Some(true) => " that the journal names",
        _ => "",
    };
    format!(
        "{before}compared {} files{which}, {} B: {} new, {} gone, {} B differed\n",
        rescan["files"],
        rescan["read_bytes"],
        rescan["new"],
        rescan["gone"],
        rescan["differed_bytes"]
    )
}

/// The parts of a tree that are in doubt. Epochs wait until they have been read.
fn open(open: &Value) -> String {
    let listed = open["listed"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for part in listed {
        let path = match part["path"].as_str() {
            None => "(no name)",
            Some("") => ".",
            Some(path) => path,
        };
        let what = match (
            word(&part["part"]),
            part["offset"].as_u64(),
            part["bytes"].as_u64(),
        ) {
            ("bytes", Some(offset), Some(bytes)) => format!("{bytes} B from {offset} on"),
            ("bytes", Some(offset), None) => format!("all from {offset} on"),
            (other, ..) => other.to_owned(),
        };
        let _ = writeln!(text, "  open  {path}  {what}");
    }
    let all = open["parts"].as_u64().unwrap_or_default();
    let more = all.saturating_sub(listed.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  open  {more} more");
    }
    text
}

/// The back-pressure of a bounded capture.
fn bounded(pressure: &Value) -> String {
    if pressure.is_null() {
        return String::new();
    }
    let now = match pressure["frozen"].as_bool() {
        Some(true) => "frozen",
        _ => "running",
    };
    format!(
        "  application {now}  frozen {} times for {} ms  too long {}  gone {}  lag {} B\n",
        pressure["freezes"],
        pressure["frozen_ms"],
        pressure["expired"],
        pressure["vanished"],
        pressure["lag_bytes"]
    )
}

/// The counters of a part, in the words of the command for its kind.
fn counts(part: &Value) -> String {
    let named: &[(&str, &str)] = match word(&part["kind"]) {
        "capture" => &[
            ("events", "events"),
            ("dropped", "dropped"),
            ("doubtful_files", "in doubt"),
            ("stale_files", "stale"),
            ("read_back_bytes", "bytes read back"),
            ("dirty_bytes", "bytes dirty"),
            ("files", "files"),
        ],
        "publish" => &[
            ("messages", "messages"),
            ("in_flight", "in flight"),
            ("retries", "retries"),
        ],
        "receive" => &[
            ("records", "received"),
            ("bytes", "bytes"),
            ("messages", "messages"),
        ],
        "apply" => &[
            ("steps", "steps"),
            ("names", "names"),
            ("bytes", "bytes"),
            ("repaired", "repaired"),
        ],
        _ => &[],
    };
    let counted = named.iter().filter_map(|(key, word)| {
        let count = part["counts"][key].as_u64()?;
        Some(format!("  {word} {count}"))
    });
    counted.collect()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
