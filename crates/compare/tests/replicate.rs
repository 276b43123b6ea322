//! Experiments of replicate in the small: everybody sees what is written, and the copy is right.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{alone, lowroad, path, record, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};

/// A block of some loads of the shipped experiment, with few writes and requests; `None` where this
/// cannot be run.
fn block(name: &str, loads: &[usize]) -> Option<Vec<Value>> {
    if !sys::require::root() {
        return None;
    }
    let follows = Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad");
    if !follows.is_file() {
        skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = std::fs::read_to_string(shipped.join(format!("{name}.toml"))).unwrap();
    let (stated, _questions) = text.split_once("[[question]]").unwrap();
    let parts: Vec<&str> = stated.split("[[load]]").collect();
    let loads: Vec<&str> = loads.iter().map(|&load| parts[load + 1]).collect();
    let text = format!("{}[[load]]{}", parts[0], loads.join("[[load]]"));
    let text = text
        .replace("= 10000 ", "= 300 ")
        .replace("= 1000 ", "= 20 ");
    let plan = folder.path().join("small.toml");
    std::fs::write(&plan, text).unwrap();
    let out = folder.path().join("out");
    succeeded(&alone(|| {
        let words = [
            "compare",
            path(&plan),
            "--blocks",
            "1",
            "--seed",
            "5",
            "--out",
        ];
        lowroad(&words).arg(&out).output().unwrap()
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

#[test]
fn every_arm_sees_writes_to_a_file() {
    if let Some(record) = block("replicate-pwrite", &[0]) {
        check(record, &["pwrite_ns", "pwrite_ns_median", "pwrite_ns_p95"]);
    }
}

#[test]
fn every_arm_sees_what_an_application_writes() {
    let Some(record) = block("replicate-overhead", &[0, 1]) else {
        return;
    };
    let loads = record[0]["loads"].as_array().unwrap();
    if loads.is_empty() {
        return skip(
            Class::OptIn,
            "Flask is not installed: LOWROAD_PYTHON names a Python with it",
        );
    }
    check(
        record,
        &["request_ms_mean", "request_ms_median", "request_ms_p95"],
    );
}

#[test]
fn the_origins_method_sees_whole_milliseconds() {
    let Some(mut record) = block("replicate-overhead", &[2]) else {
        return;
    };
    for trial in record.split_off(1) {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        let ms = trial["values"]["origin_ms"].as_f64().unwrap();
        assert!((ms * 20.0 - (ms * 20.0).round()).abs() < 1e-6, "{trial}");
    }
}
