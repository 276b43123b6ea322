//! The pages on comparing say what there is: every experiment, every option.

use crate::common::{lowroad, stdout, succeeded};
use serde_json::Value;

const EXPERIMENTS: &str = include_str!("../../../../docs/src/compare-experiments.md");
/// Each command, and the page that has the table of its options.
const OPTIONS: [(&str, &str); 2] = [
    ("compare", include_str!("../../../../docs/src/compare.md")),
    (
        "report",
        include_str!("../../../../docs/src/compare-report.md"),
    ),
];

#[test]
fn every_experiment_has_a_row() {
    let output = lowroad(&["compare", "--list", "--json"]).output().unwrap();
    succeeded(&output);
    let experiments: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for experiment in experiments {
        let row = format!("| `{}` |", experiment["name"].as_str().unwrap());
        assert!(EXPERIMENTS.contains(&row), "{row} is missing");
    }
}

#[test]
fn arguments_name_every_experiment_and_environment() {
    let output = lowroad(&["compare", "--list", "--json"]).output().unwrap();
    succeeded(&output);
    let experiments: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut experiments: Vec<&str> = experiments
        .iter()
        .map(|experiment| experiment["name"].as_str().unwrap())
        .collect();
    experiments.sort_unstable();
    assert_eq!(experiments.join(","), arguments::EXPERIMENTS);
    let environments: Vec<&str> = testbed::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(environments, arguments::ENVIRONMENTS);
}

#[test]
fn options_and_rows_match() {
    for (command, page) in OPTIONS {
        let help = stdout(&lowroad(&[command, "--help"]).output().unwrap());
        let named = help.lines().map(str::trim_start).filter_map(|line| {
            let option = line.strip_prefix("-h, ").unwrap_or(line);
            option
                .starts_with("--")
                .then(|| option.split(' ').next().unwrap().to_owned())
        });
        let options: Vec<String> = named.filter(|option| option != "--help").collect();
        let has_row = |option: &str| {
            page.contains(&format!("\n| `{option}` |")) || page.contains(&format!("\n| `{option} "))
        };
        for option in &options {
            assert!(has_row(option), "{command}: {option} is missing");
        }
        for row in page.lines().filter_map(|line| line.strip_prefix("| `--")) {
            let name = row.split(['`', ' ']).next().unwrap();
            assert!(
                options.contains(&format!("--{name}")),
                "{command} has no --{name}"
            );
        }
    }
}
