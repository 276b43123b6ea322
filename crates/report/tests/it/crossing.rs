//! From which size on an arm is better, as sentences say it.

use report::{Analysis, Record, terminal};
use serde_json::json;

use crate::common;

/// A record under two batches; `tc` is late with the small one.
fn record() -> Record {
    let mut record = common::record(20, 2);
    let names = ["random batch=32 rules=9", "random batch=1024 rules=9"];
    for trial in &mut record.trials {
        let at = record
            .header
            .loads
            .iter()
            .position(|load| *load == trial.load);
        let at = at.expect("a load of the header");
        names[at].clone_into(&mut trial.load);
        if trial.arm == "tc" && at == 0 {
            for value in trial.values.values_mut() {
                *value *= 100.0;
            }
        }
    }
    record.header.loads = names.map(str::to_owned).into();
    record.header.questions[0].along = vec!["batch".to_owned(), "rules".to_owned()];
    record
}

fn claims(record: &Record) -> Vec<String> {
    let text = terminal::results(&Analysis::new(record));
    let about = text
        .lines()
        .filter(|line| line.ends_with("(random rules=9)"));
    about.map(str::to_owned).collect()
}

#[test]
fn each_pair_has_the_size_from_which_on_it_is_decided() {
    let lines = claims(&record());
    for line in [
        "xdp has less p50 than recv at every batch, 32 to 1024 (random rules=9)",
        "tc has less p50 than recv from batch 1024 on, of 32 to 1024 (random rules=9)",
    ] {
        assert!(lines.iter().any(|said| said == line), "{line}: {lines:?}");
    }
    // One number of rules is not a series.
    assert_eq!(
        lines.len(),
        4,
        "tc and xdp against recv and busy: {lines:?}"
    );
}

#[test]
fn a_gain_that_does_not_last_is_none() {
    let mut record = record();
    for trial in &mut record.trials {
        if trial.arm == "xdp" && trial.load.contains("1024") {
            for value in trial.values.values_mut() {
                *value *= 100.0;
            }
        }
    }
    let line = "xdp has less p50 than recv from no batch on, of 32 to 1024 (random rules=9)";
    assert!(claims(&record).iter().any(|said| said == line));
}

#[test]
fn nothing_is_said_of_what_was_emulated() {
    let mut record = record();
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == "xdp") {
        trial
            .environment
            .insert("device.emulated".to_owned(), json!(true));
    }
    let lines = claims(&record);
    assert!(
        !lines.is_empty() && !lines.iter().any(|line| line.contains("xdp")),
        "{lines:?}"
    );
}

#[test]
fn arms_without_a_device_are_one_line() {
    let mut record = record();
    let mut skip = record.header.skipped[0].clone();
    skip.reason = "no GPU is here".to_owned();
    record.header.skipped = ["opencl-naive", "cuda-naive"]
        .map(|arm| report::record::Skip {
            arm: arm.to_owned(),
            ..skip.clone()
        })
        .into();
    let text = terminal::results(&Analysis::new(&record));
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("GPU")).collect();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("opencl-naive, cuda-naive did not run: no GPU is here; "));
}
