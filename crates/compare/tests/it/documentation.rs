//! The page on comparing says what there is: every experiment, every option.

use crate::common::{lowroad, stdout, succeeded};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/src/compare.md");

#[test]
fn every_experiment_has_a_row() {
    let output = lowroad(&["compare", "--list", "--json"]).output().unwrap();
    succeeded(&output);
    let experiments: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for experiment in experiments {
        let row = format!("| `{}` |", experiment["name"].as_str().unwrap());
        assert!(PAGE.contains(&row), "{row} is missing");
    }
}

#[test]
fn options_and_rows_match() {
    let mut options = Vec::new();
    for command in ["compare", "report"] {
        let help = stdout(&lowroad(&[command, "--help"]).output().unwrap());
        let named = help.lines().map(str::trim_start).filter_map(|line| {
            let option = line.strip_prefix("-h, ").unwrap_or(line);
            option
                .starts_with("--")
                .then(|| option.split(' ').next().unwrap().to_owned())
        });
        options.extend(named.filter(|option| option != "--help"));
    }
    let has_row = |option: &str| {
        PAGE.contains(&format!("\n| `{option}` |")) || PAGE.contains(&format!("\n| `{option} "))
    };
    for option in &options {
        assert!(has_row(option), "{option} is missing");
    }
    for row in PAGE.lines().filter_map(|line| line.strip_prefix("| `--")) {
        let name = row.split(['`', ' ']).next().unwrap();
        assert!(
            options.contains(&format!("--{name}")),
            "there is no --{name}"
        );
    }
}
