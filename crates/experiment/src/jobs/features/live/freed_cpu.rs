//! A freed-CPU trial: how many inferences the receiving CPU still makes beside a capture, which goes
//! first there. What is not counted as CPU time by anybody, such as caches gone cold, is in it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use loadgen::Amount;
use splitmix::SplitMix64;
use sys::energy::Meter;

use super::capture::Rows;
use super::stage::Stage;
use crate::jobs::features::FeaturesBench;
use crate::jobs::features::load::TrialSpec;
use crate::noise::Watch;
use crate::outcome::Outcome;

/// The number of complete trees in the model.
const TREES: usize = 32;
const DEPTH: usize = 8;
const INPUTS: usize = 16;
/// Inferences between two looks at whether it is over.
const BATCH: usize = 64;

pub(super) fn trial(bench: &FeaturesBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let mut stage = Stage::set(bench.cpus(), spec, Rows::File)?;
    let pids = stage.pids();
    let forest = Forest::new();
    let over = AtomicBool::new(false);
    let mut outcome = Outcome::default();
    let noise = Watch::start(&bench.foreign, &pids)?;
    let energy = Meter::start();
    let (sent, rate) = thread::scope(|scope| {
        let infers = scope.spawn(|| forest.infer(bench.cpus().1, &over));
        let sent = stage.generate(spec.load, Amount::Time(spec.load.duration.0));
        over.store(true, Ordering::Relaxed);
        (sent, infers.join())
    });
    let energy_uj = energy.and_then(|meter| meter.microjoules());
    noise.end(&pids, &mut outcome)?;
    let (sent, rate) = (
        sent?,
        rate.map_err(|_| anyhow::anyhow!("the inference panicked"))??,
    );
    bench
        .monitor
        .note_generator(&sent, spec.load.rate, &mut outcome);
    stage.finish(&mut outcome)?;
    let mut value = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    value("inferences_per_s", rate);
    if let Some(energy_uj) = energy_uj {
        let inferences = rate * sent.elapsed_ns as f64 / 1e9;
        value("energy_uj_per_inference", energy_uj as f64 / inferences);
    }
    Ok((stage, outcome))
}

/// Trees as arrays: the children of node n are 2n + 1 and 2n + 2.
struct Forest {
    /// Input and threshold of each node, tree after tree.
    nodes: Vec<(usize, u64)>,
    inputs: Vec<[u64; INPUTS]>,
}

impl Forest {
    /// The same in every trial.
    fn new() -> Self {
        let mut random = SplitMix64::new(1);
        let nodes = TREES * ((1 << DEPTH) - 1);
        let nodes = (0..nodes).map(|at| (at * 7 % INPUTS, random.next_u64()));
        let nodes = nodes.collect();
        let inputs = (0..1024).map(|_| std::array::from_fn(|_| random.next_u64()));
        Self {
            nodes,
            inputs: inputs.collect(),
        }
    }

    /// Inferences a second on a CPU, until it is over.
    fn infer(&self, cpu: usize, over: &AtomicBool) -> Result<f64> {
        sys::sched::pin(cpu)?;
        let start = Instant::now();
        let mut done = 0_usize;
        while !over.load(Ordering::Relaxed) {
            for at in done..done + BATCH {
                black_box(self.classify(&self.inputs[at % self.inputs.len()]));
            }
            done += BATCH;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }

    fn classify(&self, inputs: &[u64; INPUTS]) -> usize {
        let trees = self.nodes.chunks_exact((1 << DEPTH) - 1);
        trees.map(|tree| leaf(tree, inputs)).sum()
    }
}

fn leaf(tree: &[(usize, u64)], inputs: &[u64; INPUTS]) -> usize {
    let mut at = 0;
    while let Some(&(input, threshold)) = tree.get(at) {
        at = 2 * at + 1 + usize::from(inputs[input] > threshold);
    }
    at - tree.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_at_one_of_a_trees_leaves() {
        let forest = Forest::new();
        assert_eq!(forest.nodes.len(), TREES * 255);
        let tree = &forest.nodes[..255];
        let leaves: std::collections::BTreeSet<usize> = forest
            .inputs
            .iter()
            .map(|inputs| leaf(tree, inputs))
            .collect();
        assert!(leaves.iter().all(|&at| at <= 255), "{leaves:?}");
        assert!(leaves.len() > 10, "{leaves:?}");
        assert_eq!(leaf(&[(0, 5)], &[5; INPUTS]), 0);
        assert_eq!(leaf(&[(0, 5)], &[6; INPUTS]), 1);
    }
}
