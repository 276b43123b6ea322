//! Experiments of replicate in the small: everybody sees what is written, and the copy is right.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::{ONE_BLOCK, alone, lowroad, path, program, record, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};

/// A block of one load of the shipped experiment, with few writes and requests; `None` where this
/// cannot be run.
fn block(name: &str, load: usize, arms: &[&str]) -> Option<Vec<Value>> {
    if !sys::require::root() {
        return None;
    }
    program()?;
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = std::fs::read_to_string(shipped.join(format!("{name}.toml"))).unwrap();
    let (stated, _questions) = text.split_once("[[question]]").unwrap();
    let parts: Vec<&str> = stated.split("[[load]]").collect();
    let text = format!("{}[[load]]{}", parts[0], parts[load + 1]);
    let text = text
        .replace("= 10000 ", "= 300 ")
        .replace("= 1000 ", "= 20 ")
        .replace("duration = \"5s\"", "duration = \"200ms\"")
        .replace("duration = \"2s\"", "duration = \"100ms\"");
    let plan = folder.path().join("small.toml");
    std::fs::write(&plan, text).unwrap();
    let out = folder.path().join("out");
    succeeded(&alone(|| {
        let mut command = lowroad(&["compare", path(&plan)]);
        command.args(ONE_BLOCK);
        if !arms.is_empty() {
            command.args(["--arms", &arms.join(",")]);
        }
        command.arg("--out").arg(&out).output().unwrap()
    }));
    Some(record(&out))
}

/// Each trial of a block measured `metrics`; what was followed is what the log says.
fn check(mut record: Vec<Value>, metrics: &[&str]) {
    let trials = record.split_off(1);
    let skipped = record[0]["skipped"].as_array().unwrap();
    let mut ran = BTreeSet::new();
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        for metric in metrics {
            assert!(
                trial["values"][metric].as_f64() > Some(0.0),
                "{metric}: {trial}"
            );
        }
        let arm = trial["arm"].as_str().unwrap();
        ran.insert(arm);
        if trial["environment"]["capture"].is_object() {
            let differing = trial["values"]["bytes_differing"].as_f64().unwrap();
            assert!(differing.abs() < 0.5, "{trial}");
            assert!(trial["counts"]["events"].as_u64() > Some(0), "{trial}");
        }
        // Whoever writes down what it saw has seen something.
        if !["none", "bindfs"].contains(&arm) {
            assert!(trial["counts"]["log_bytes"].as_u64() > Some(0), "{trial}");
        }
    }
    assert!(ran.contains("none") && ran.contains("data"), "{skipped:?}");
    let arms = record[0]["arms"].as_array().unwrap();
    assert_eq!(ran.len(), arms.len(), "{skipped:?}");
}

/// Whether the applications can run; the skip is reported.
fn flask() -> bool {
    let python = std::env::var("LOWROAD_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(python).args(["-c", "import flask"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skip(
            Class::OptIn,
            "Flask is not installed: apt-get install python3-flask",
        );
    }
    found
}

#[test]
fn every_arm_sees_writes_to_a_file() {
    if let Some(record) = block("replicate-pwrite", 0, &[]) {
        check(record, &["pwrite_ns", "pwrite_ns_median", "pwrite_ns_p95"]);
    }
}

/// Checks that these arms see the writes of an application. Without arms it checks all.
fn application_is_seen(arms: &[&str]) {
    if flask()
        && let Some(record) = block("replicate-overhead", 0, arms)
    {
        let metrics = ["request_ms_mean", "request_ms_median", "request_ms_p95"];
        check(record, &metrics);
    }
}

#[test]
fn own_arms_see_what_application_writes() {
    application_is_seen(&["none", "journal", "data"]);
}

#[test]
#[ignore = "every arm, which all see the writes of a plain program as well"]
fn every_arm_sees_what_an_application_writes() {
    application_is_seen(&[]);
}

/// Checks that the times of the origin's method add up to whole milliseconds.
fn milliseconds_are_whole(arms: &[&str]) {
    if !flask() {
        return;
    }
    let Some(mut record) = block("replicate-overhead", 2, arms) else {
        return;
    };
    for trial in record.split_off(1) {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        // The sum over 20 requests.
        let sum = trial["values"]["origin_ms"].as_f64().unwrap() * 20.0;
        assert!(sum > 0.0 && (sum - sum.round()).abs() < 1e-6, "{trial}");
    }
}

#[test]
fn origins_method_sees_whole_milliseconds() {
    milliseconds_are_whole(&["none", "data"]);
}

#[test]
#[ignore = "one arm more"]
fn the_origins_method_sees_whole_milliseconds() {
    milliseconds_are_whole(&["none", "journal", "data"]);
}

/// Copies of each arm had all writes, each some time after it was made, and were the tree at the end.
fn check_copies(mut record: Vec<Value>, writes: u64, copies: u64) {
    let trials = record.split_off(1);
    let skipped = &record[0]["skipped"];
    let arms = record[0]["arms"].as_array().unwrap().len();
    // Disturbed ones are tried again.
    assert!(trials.len() >= arms + 2, "{skipped}");
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        let value = |name: &str| trial["values"][name].as_f64().unwrap();
        assert!(value("bytes_differing").abs() < 0.5, "{trial}");
        assert!(value("lag_ms_p50") > 0.0, "{trial}");
        assert!(value("lag_ms_p99") >= value("lag_ms_p50"), "{trial}");
        assert!(value("source_cpu_us_per_write") > 0.0, "{trial}");
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        assert_eq!((count("writes"), count("copies")), (writes, copies));
        // Each write is synced, and what is synced is an epoch.
        assert!(count("epochs") > writes, "{trial}");
        // All of it leaves the source: for each copy, or once.
        let (sent, bytes) = (count("sent_bytes"), (1000 + 2 * writes) * 4096);
        match trial["arm"].as_str().unwrap() {
            "tcp" => assert!(sent >= copies * bytes, "{trial}"),
            "nats" => assert!((bytes..2 * bytes).contains(&sent), "{trial}"),
            _ => assert_eq!(sent, 0, "{trial}"),
        }
    }
}

#[test]
fn copies_match_over_every_transport() {
    if let Some(record) = block("replicate-lag", 0, &[]) {
        check_copies(record, 200, 1);
    }
}
