//! Arrows point down: floor < comparison and jobs < experiment < binaries.

use anyhow::Result;
use serde_json::Value;

use crate::metadata::{self, packages, text};
use crate::tally::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Floor,
    /// What both binaries are asked, known to nothing below them.
    Arguments,
    /// What users run in production; knows nothing of how it is compared.
    Job,
    /// What a job's users may ask beside it, and the job does not carry: models that evaluate anything.
    Inference,
    /// What measures; knows no job.
    Comparison,
    Experiment,
    /// The production binary: jobs, and what `doctor` asks.
    Production,
    CompareBinary,
    /// Other languages' packages: jobs, and for Python the records of experiments.
    Package,
    Task,
}

/// Every crate's layer: a new crate is added here.
const LAYERS: &[(&str, Layer)] = &[
    ("acl", Layer::Floor),
    ("boot", Layer::Floor),
    ("bpf", Layer::Floor),
    ("control", Layer::Floor),
    ("datapath", Layer::Floor),
    ("gpu", Layer::Floor),
    ("guest", Layer::Floor),
    ("lpm", Layer::Floor),
    ("nats", Layer::Floor),
    ("netdev", Layer::Floor),
    ("packet", Layer::Floor),
    ("prefix", Layer::Floor),
    ("sys", Layer::Floor),
    ("xsk", Layer::Floor),
    ("arguments", Layer::Arguments),
    ("features", Layer::Job),
    ("netbench", Layer::Job),
    ("relay", Layer::Job),
    ("replicate", Layer::Job),
    ("router", Layer::Job),
    ("inference", Layer::Inference),
    ("loadgen", Layer::Comparison),
    ("probes", Layer::Comparison),
    ("report", Layer::Comparison),
    ("stats", Layer::Comparison),
    ("testbed", Layer::Comparison),
    ("experiment", Layer::Experiment),
    ("lowroad", Layer::Production),
    ("netbench-agent", Layer::Production),
    ("compare", Layer::CompareBinary),
    ("python", Layer::Package),
    ("router-c", Layer::Package),
    ("xtask", Layer::Task),
];

/// Comparison crates the production binary may carry: `doctor` asks them what can run here.
const ASKED_BY_DOCTOR: &[&str] = &["loadgen", "probes", "stats"];

/// The crate that tasks and the test bed boot guests with.
const BOOTED_BY_TASKS: &str = "boot";

/// The comparison crate that the Python package carries: records are read there as well.
const READ_BY_PACKAGE: &str = "report";

pub(super) fn check() -> Result<Outcome> {
    let metadata = metadata::load(false)?;
    let mut wrong = Vec::new();
    for package in packages(&metadata) {
        let name = text(package, "name");
        let Some(from) = layer(name) else {
            wrong.push(format!("{name} has no layer: add it to LAYERS"));
            continue;
        };
        for (dependency, kind) in ours(package) {
            let Some(to) = layer(dependency) else {
                continue;
            };
            if !allowed(from, to, dependency, kind) {
                wrong.push(format!(
                    "{name} ({from:?}) must not depend on {dependency} ({to:?})"
                ));
            }
        }
    }
    Ok(super::verdict(&wrong, "move the shared part down a layer"))
}

fn layer(name: &str) -> Option<Layer> {
    LAYERS
        .iter()
        .find(|(crate_name, _)| *crate_name == name)
        .map(|(_, layer)| *layer)
}

/// Dependencies on crates of this repository, with their kind: normal is "".
fn ours(package: &Value) -> impl Iterator<Item = (&str, &str)> {
    package["dependencies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|dependency| dependency["path"].is_string())
        .map(|dependency| (text(dependency, "name"), text(dependency, "kind")))
}

fn allowed(from: Layer, to: Layer, name: &str, kind: &str) -> bool {
    use Layer::{
        Arguments, CompareBinary, Comparison, Experiment, Floor, Inference, Job, Package,
        Production, Task,
    };
    // Tests of any layer may build networks, make packets and measure them.
    if kind == "dev" && matches!(to, Floor | Comparison) {
        return true;
    }
    match from {
        Floor | Job => to == Floor,
        Comparison => matches!(to, Floor | Comparison),
        Experiment => matches!(to, Floor | Comparison | Job),
        Arguments => false,
        Inference => matches!(to, Floor | Job),
        Production => {
            matches!(to, Floor | Job | Inference | Arguments)
                || (to == Comparison && ASKED_BY_DOCTOR.contains(&name))
        }
        CompareBinary => matches!(to, Floor | Comparison | Job | Experiment | Arguments),
        Package => matches!(to, Floor | Job | Inference) || name == READ_BY_PACKAGE,
        Task => BOOTED_BY_TASKS == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_down() {
        assert!(allowed(Layer::Job, Layer::Floor, "packet", ""));
        assert!(!allowed(Layer::Job, Layer::Job, "relay", ""));
        assert!(!allowed(Layer::Job, Layer::Inference, "inference", ""));
        assert!(!allowed(Layer::Job, Layer::Comparison, "testbed", ""));
        assert!(allowed(Layer::Job, Layer::Comparison, "testbed", "dev"));
        assert!(!allowed(Layer::Comparison, Layer::Job, "relay", "dev"));
        assert!(!allowed(
            Layer::Production,
            Layer::Comparison,
            "testbed",
            ""
        ));
        assert!(allowed(Layer::Package, Layer::Comparison, "report", ""));
        assert!(!allowed(Layer::Package, Layer::Comparison, "testbed", ""));
    }
}
