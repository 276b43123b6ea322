//! Arrows point down: floor < comparison and jobs < experiment and benchmarks < binaries.

use anyhow::Result;
use serde_json::Value;

use crate::metadata::{self, packages, text};
use crate::tally::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Floor,
    /// The arguments of both binaries, known to nothing below them.
    Arguments,
    /// The work that users run in production; does not know comparison.
    Job,
    /// Programs that jobs start and never link: what evaluates ONNX models.
    Evaluator,
    /// The instruments; they know no job.
    Comparison,
    Experiment,
    /// Measures the engines of jobs in the production binary.
    Benchmarks,
    Production,
    CompareBinary,
    /// Other languages' packages: jobs, and for Python the records of experiments.
    Package,
    Task,
    /// Shared by tests of several crates: only dev-dependencies may name it.
    TestSupport,
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
    ("onnx-protocol", Layer::Floor),
    ("packet", Layer::Floor),
    ("prefix", Layer::Floor),
    ("process", Layer::Floor),
    ("rcu", Layer::Floor),
    ("splitmix", Layer::Floor),
    ("sys", Layer::Floor),
    ("units", Layer::Floor),
    ("xsk", Layer::Floor),
    ("arguments", Layer::Arguments),
    ("features", Layer::Job),
    ("netbench", Layer::Job),
    ("relay", Layer::Job),
    ("replicate", Layer::Job),
    ("router", Layer::Job),
    ("onnx", Layer::Evaluator),
    ("loadgen", Layer::Comparison),
    ("probes", Layer::Comparison),
    ("report", Layer::Comparison),
    ("stats", Layer::Comparison),
    ("testbed", Layer::Comparison),
    ("experiment", Layer::Experiment),
    ("benchmarks", Layer::Benchmarks),
    ("lowroad", Layer::Production),
    ("netbench-agent", Layer::Production),
    ("compare", Layer::CompareBinary),
    ("python", Layer::Package),
    ("router-c", Layer::Package),
    ("xtask", Layer::Task),
    ("test-support", Layer::TestSupport),
    ("workspace-hack", Layer::Floor),
];

/// Comparison crates that benchmarks, and so the production binary, may link: none has a test bed.
const LINKED_BY_BENCHMARKS: &[&str] = &["loadgen", "stats"];

/// Comparison crates that the production binary may link: `doctor` lists the requirements of probes and generators, and
/// benchmarks print intervals.
const LINKED_BY_PRODUCTION: &[&str] = &["loadgen", "probes", "stats"];

/// The crate with which tasks and the test bed boot guests.
const LINKED_BY_TASKS: &str = "boot";

/// The comparison crate that the Python package may link, because it reads records.
const LINKED_BY_PACKAGE: &str = "report";

/// The crate without code that states the features of shared dependencies.
const FEATURES: &str = "workspace-hack";

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
        Arguments, Benchmarks, CompareBinary, Comparison, Evaluator, Experiment, Floor, Job,
        Package, Production, Task, TestSupport,
    };
    if name == FEATURES {
        return true;
    }
    // Tests of any layer may build networks, make packets and measure them.
    if kind == "dev" && matches!(to, Floor | Comparison | TestSupport) {
        return true;
    }
    // The evaluator's tests load models as jobs do.
    if kind == "dev" && (from, to) == (Evaluator, Job) {
        return true;
    }
    match from {
        Floor | Job | Evaluator | TestSupport => to == Floor,
        Comparison => matches!(to, Floor | Comparison),
        Experiment => matches!(to, Floor | Comparison | Job),
        Arguments => false,
        Benchmarks => matches!(to, Floor | Job) || LINKED_BY_BENCHMARKS.contains(&name),
        Production => {
            matches!(to, Floor | Job | Arguments | Benchmarks)
                || LINKED_BY_PRODUCTION.contains(&name)
        }
        CompareBinary => matches!(to, Floor | Comparison | Job | Experiment | Arguments),
        Package => matches!(to, Floor | Job) || name == LINKED_BY_PACKAGE,
        Task => LINKED_BY_TASKS == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_down() {
        assert!(allowed(Layer::Job, Layer::Floor, "packet", ""));
        assert!(!allowed(Layer::Job, Layer::Job, "relay", ""));
        assert!(!allowed(Layer::Production, Layer::Evaluator, "onnx", ""));
        assert!(!allowed(Layer::Production, Layer::Evaluator, "onnx", "dev"));
        assert!(!allowed(Layer::Evaluator, Layer::Job, "features", ""));
        assert!(allowed(Layer::Evaluator, Layer::Job, "features", "dev"));
        assert!(!allowed(Layer::Job, Layer::Comparison, "testbed", ""));
        assert!(allowed(Layer::Job, Layer::Comparison, "testbed", "dev"));
        assert!(!allowed(Layer::Comparison, Layer::Job, "relay", "dev"));
        assert!(!allowed(
            Layer::Production,
            Layer::Comparison,
            "testbed",
            ""
        ));
        let benchmarks = |to, name| allowed(Layer::Benchmarks, to, name, "");
        assert!(benchmarks(Layer::Job, "router") && benchmarks(Layer::Comparison, "stats"));
        assert!(!benchmarks(Layer::Comparison, "testbed"));
        assert!(!allowed(Layer::Job, Layer::Benchmarks, "benchmarks", ""));
        assert!(allowed(Layer::Package, Layer::Comparison, "report", ""));
        assert!(!allowed(Layer::Package, Layer::Comparison, "testbed", ""));
        let helpers = |from, kind| allowed(from, Layer::TestSupport, "test-support", kind);
        assert!(helpers(Layer::Job, "dev") && helpers(Layer::CompareBinary, "dev"));
        assert!(!helpers(Layer::Job, "") && !helpers(Layer::CompareBinary, ""));
        assert!(!allowed(
            Layer::TestSupport,
            Layer::Comparison,
            "testbed",
            ""
        ));
    }
}
