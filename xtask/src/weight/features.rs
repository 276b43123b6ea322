//! Whether building one crate builds what it shares with others again.
//!
//! Cargo unifies the features of a dependency over the crates that one command selects. A dependency that a single
//! crate builds with other features than the whole workspace is compiled twice, and so is all that depends on it.
//! `crates/workspace-hack` states the features of the whole workspace for every crate that depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::{self, packages, text};
use crate::tally::Outcome;

/// Crates that do without `workspace-hack`: the agent must stay small, `bpf` and `boot` run in builds, and xtask is built
/// before everything else. What they share with others is small.
const EXEMPT: &[&str] = &[
    "boot",
    "bpf",
    "control",
    "datapath",
    "guest",
    "netbench",
    "netbench-agent",
    "process",
    "splitmix",
    "units",
    "workspace-hack",
    "xtask",
];

/// A dependency, and the kind of its target: a library or a build script.
type Unit = (String, String);
/// The sets of features with which each dependency is built.
type Units = BTreeMap<Unit, BTreeSet<Vec<String>>>;

/// Builds and tests of every crate select no dependency with features that the workspace's test build lacks.
pub(super) fn check() -> Result<Outcome> {
    let whole = units(&["test", "--no-run", "--workspace", "--all-targets"])?;
    let metadata = metadata::load(false)?;
    let mut findings = Vec::new();
    for package in packages(&metadata) {
        let name = text(package, "name");
        if EXEMPT.contains(&name) {
            continue;
        }
        for verb in [
            ["build", "--package", name].as_slice(),
            &["test", "--no-run", "--package", name],
        ] {
            for (dependency, features) in rebuilt(&whole, &units(verb)?) {
                findings.push(format!(
                    "cargo {}: {dependency} has the features [{}]",
                    verb.join(" "),
                    features.join(", ")
                ));
            }
        }
    }
    if findings.is_empty() {
        return Ok(Outcome::Passed);
    }
    findings.push("state the missing features in crates/workspace-hack/Cargo.toml".to_owned());
    Ok(Outcome::Failed(findings.join("\n")))
}

/// Dependencies of one selection that the whole workspace builds with other features.
fn rebuilt(whole: &Units, selection: &Units) -> Vec<(String, Vec<String>)> {
    let mut rebuilt = Vec::new();
    for (unit, sets) in selection {
        for features in sets {
            if !whole
                .get(unit)
                .is_some_and(|known| known.contains(features))
            {
                rebuilt.push((unit.0.clone(), features.clone()));
            }
        }
    }
    rebuilt
}

/// The units of a cargo command that come from elsewhere.
fn units(arguments: &[&str]) -> Result<Units> {
    // The stable `cargo tree` does not tell libraries of the target from those of build scripts. Nothing is compiled.
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--locked", "--unit-graph", "-Zunstable-options"])
        .env("RUSTC_BOOTSTRAP", "1")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    if !output.status.success() {
        bail!("cargo {} ended with {}", arguments.join(" "), output.status);
    }
    let graph: Value = serde_json::from_slice(&output.stdout).context("cargo --unit-graph")?;
    Ok(read(&graph))
}

fn read(graph: &Value) -> Units {
    let mut units = Units::new();
    for unit in graph["units"].as_array().into_iter().flatten() {
        let package = text(unit, "pkg_id");
        if package.starts_with("path+") {
            continue;
        }
        let kind = unit["target"]["kind"][0].as_str().unwrap_or_default();
        let features = unit["features"].as_array().into_iter().flatten();
        let mut features: Vec<String> = features
            .filter_map(|feature| feature.as_str().map(str::to_owned))
            .collect();
        features.sort();
        units
            .entry((package.to_owned(), kind.to_owned()))
            .or_default()
            .insert(features);
    }
    units
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn graph(features: &[&str]) -> Value {
        json!({"units": [
            {"pkg_id": "registry+index#nix@0.31.3", "target": {"kind": ["lib"]}, "features": features},
            {"pkg_id": "path+file:///relay#0.1.0", "target": {"kind": ["lib"]}, "features": []},
        ]})
    }

    #[test]
    fn other_features_are_found() {
        let whole = read(&graph(&["net", "fs"]));
        assert!(rebuilt(&whole, &read(&graph(&["fs", "net"]))).is_empty());
        let found = rebuilt(&whole, &read(&graph(&["fs"])));
        let nix = (
            "registry+index#nix@0.31.3".to_owned(),
            vec!["fs".to_owned()],
        );
        assert_eq!(found, [nix]);
    }
}
