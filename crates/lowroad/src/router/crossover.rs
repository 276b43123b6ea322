//! `lowroad router crossover`: the batch size from which a device is faster than a CPU thread.

use std::path::PathBuf;

use anyhow::anyhow;
use benchmarks::router::crossover::{self, Comparison, faster_from_rules};
use benchmarks::router::engine::caution;
use clap::Args;
use gpu::{DeviceInfo, Kind};
use process::shutdown::Shutdown;
use router::engine::Function;
use serde_json::{Value, json};

use super::bench::{output, show};
use super::benchmark_failure;
use super::device::Device;
use super::engine::CpuEngine;
use super::inputs::Inputs;
use super::process::{Packets, function};
use super::table_source::EngineInput;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
#[command(
    after_help = "Both process the same frames from memory in every round, in random order; decisions are compared."
)]
pub(super) struct Crossover {
    /// Table image, in place of --rib and --rules
    image: Option<PathBuf>,
    /// Route packets (lpm), filter them (acl), or both [default: what there are routes and rules for]
    #[arg(long, value_name = "lpm|acl|both")]
    function: Option<Function>,
    /// Have each process all packets N times, in turn
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(6..=1000))]
    rounds: u16,
    /// Measure also with only the first N rules of each family, for each N
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    first_rules: Vec<u32>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    cpu: CpuEngine,
    #[command(flatten)]
    device: Device,
    #[command(flatten)]
    packets: Packets,
}

impl Crossover {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let Some(name) = &self.device.device else {
            let what = "--device: name the device, as lowroad router devices does";
            return Err(Failure::Input(what.to_owned()));
        };
        let device = self.device.options(name, self.cpu.layout4())?;
        let mut input = EngineInput::load(self.image.as_deref(), &self.inputs)?;
        let function = function(self.function, &input)?;
        if !self.first_rules.is_empty() && !function.filters() {
            let what = format!("--first-rules: {function} has no rules");
            return Err(Failure::Input(what));
        }
        if !input.has_routes {
            input.dataset.image = None;
        }
        let options = crossover::Options {
            cpu: self.cpu.options(),
            device,
            function,
            rounds: self.rounds,
            first_rules: self.first_rules.clone(),
            packets: self.packets.generator(),
        };
        let comparisons = crossover::run(&input.dataset, &options, &shutdown, &mut show)
            .map_err(benchmark_failure)?;
        self.print(&comparisons, &options.device.device, json)
    }

    fn print(
        &self,
        comparisons: &[Comparison],
        device: &DeviceInfo,
        json: bool,
    ) -> Result<(), Failure> {
        exit::print(&if json {
            format!("{:#}\n", self.json(comparisons, device))
        } else {
            text(comparisons, &device.name(), device.kind)
        })?;
        match comparisons.iter().map(|one| one.group.wrong()).sum() {
            0 => Ok(()),
            wrong => Err(Failure::Failed(anyhow!(
                "{wrong} decisions differ: please report this"
            ))),
        }
    }

    /// The last comparison, with all rules, and all of them beside it if there are several.
    fn json(&self, comparisons: &[Comparison], device: &DeviceInfo) -> Value {
        let mut value = comparisons.last().map_or(Value::Null, comparison_json);
        let (model, kind) = (&device.model, device.kind.name());
        value["device"] = json!({"name": device.name(), "model": model, "kind": kind});
        value["caution"] = caution(device).into();
        if !self.first_rules.is_empty() {
            value["faster_from_rules"] = faster_from_rules(comparisons).into();
            value["by_rules"] = comparisons.iter().map(comparison_json).collect();
        }
        value
    }
}

fn comparison_json(comparison: &Comparison) -> Value {
    json!({
        "rules": {"v4": comparison.rules[0], "v6": comparison.rules[1]},
        "faster_from_batch": comparison.faster_from_batch(),
        "decisions": output::group_json(&comparison.group),
    })
}

fn text(comparisons: &[Comparison], name: &str, kind: Kind) -> String {
    let mut text =
        "ns per packet, from its frame to its decision, median and interval\n".to_owned();
    if cfg!(debug_assertions) {
        text += "this is a debug build: a release build takes less\n";
    }
    if kind != Kind::Gpu {
        let kind = kind.name();
        text += &format!("{name} is a {kind}: nothing here is a GPU's figure\n");
    }
    let several = comparisons.len() > 1;
    for comparison in comparisons {
        let Comparison { rules, group } = comparison;
        text += &output::group_text(group);
        if several {
            text += &format!("with {} + {} rules ", rules[0], rules[1]);
        }
        text += &match comparison.faster_from_batch() {
            Some(batch) => {
                format!("{name} is faster than one CPU thread from batches of {batch} on\n")
            }
            None => {
                format!("{name} is not certainly faster than one CPU thread at the largest batch\n")
            }
        };
    }
    if several {
        text += &match faster_from_rules(comparisons) {
            Some(rules) => format!("{name} is faster from {rules} rules on, in batches as above\n"),
            None => format!("{name} is faster from no number of these rules on\n"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use benchmarks::router::group::{Arm, Group};

    use super::*;

    /// Twenty rounds in which a packet takes 100 ns of a CPU, and another constant time of a device.
    fn comparison(rules: usize, device_ns: f64) -> Comparison {
        let ns = |ns: f64| vec![vec![ns; 20]; 7];
        let arm = |engine: &str, time: f64| Arm {
            engine: engine.to_owned(),
            bytes: 1,
            build_s: 0.1,
            wrong: 0,
            ns: ns(time),
        };
        Comparison {
            rules: [rules, 1],
            group: Group {
                name: "decisions",
                about: String::new(),
                patterns: vec!["batch"; 7],
                checked: 1,
                arms: vec![arm("CPU", 100.0), arm("device", device_ns)],
                again: ns(100.0),
            },
        }
    }

    #[test]
    fn text_names_rules_from_which_device_is_faster() {
        let text = |device: [f64; 3]| {
            let all = [10, 100, 1000].into_iter().zip(device);
            let all: Vec<_> = all.map(|(rules, ns)| comparison(rules, ns)).collect();
            text(&all, "opencl:0", Kind::Gpu)
        };
        let rising = text([200.0, 50.0, 10.0]);
        assert!(
            rising.contains("with 10 + 1 rules opencl:0 is not certainly"),
            "{rising}"
        );
        assert!(
            rising.ends_with("opencl:0 is faster from 101 rules on, in batches as above\n"),
            "{rising}"
        );
        let falling = text([10.0, 10.0, 200.0]);
        assert!(
            falling.ends_with("from no number of these rules on\n"),
            "{falling}"
        );
    }
}
