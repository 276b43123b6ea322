//! What a job brings to an experiment: how one trial of one arm is run.

mod account;
pub mod features;
pub mod netbench;
mod noise;
pub(crate) mod placed;
pub(crate) mod program;
pub mod relay;
pub mod replicate;
pub mod router;

use std::collections::BTreeMap;

use anyhow::Result;
use datapath::Missing;
use report::record::{Span, Stacks};
use stats::Histogram;

pub use self::placed::Inside;
use self::placed::{NATIVE, PlacedFit};
use crate::plan::{IdlePolicy, Link, Load, LoadSource, Measure, Plan};

/// One trial to run.
#[derive(Clone, Copy, Debug)]
pub struct TrialSpec<'a> {
    pub arm: &'a str,
    pub load: &'a Load,
    pub measure: Measure,
    pub idle: IdlePolicy,
    /// Where the device under test is.
    pub environment: &'a str,
    pub seed: u64,
    /// What is known of the machine under this load may stand for the whole block.
    pub block: usize,
}

/// What one trial gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What is wrong with the trial by itself.
    pub flags: Vec<String>,
    /// What disturbed it from outside: another attempt may be spared that.
    pub disturbances: Vec<String>,
    pub environment: BTreeMap<String, serde_json::Value>,
    pub values: BTreeMap<String, f64>,
    pub counts: BTreeMap<String, u64>,
    pub histograms: BTreeMap<String, Histogram>,
    pub cpu: BTreeMap<String, f64>,
    pub stacks: Option<Stacks>,
    pub spans: Vec<Span>,
    pub noise: BTreeMap<String, f64>,
}

/// What of a plan this machine can run. It changes nothing and needs no rights.
pub trait Fit {
    /// Why this machine cannot run the arm.
    fn check(&self, arm: &str) -> Result<(), Missing>;

    /// Why this machine cannot offer the load.
    fn check_load(&self, load: &Load) -> Result<(), Missing>;

    /// Why the arm cannot run under this load, where it can under others.
    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing>;

    /// What `lowroad doctor` calls the datapath of the arm that is looked for where the device under test
    /// is; none of an arm that needs nothing there. Else why the arm is nowhere but here.
    fn placed<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing>;

    /// Why the arm cannot run under this load with the device under test in there.
    fn applies_in(&self, arm: &str, load: &Load, inside: &Inside) -> Result<(), Missing>;
}

/// A job under measurement.
pub trait Bench {
    /// Runs one trial in a fresh topology.
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome>;
}

/// What a job lets an experiment file say.
pub(crate) struct Stated {
    /// Every arm there is.
    pub(crate) arms: Vec<&'static str>,
    /// What may follow an arm's name, each after a plus.
    pub(crate) tunings: &'static [&'static str],
    /// What is wrong with a load that measures this.
    pub(crate) check: fn(&Load, Measure) -> Result<(), String>,
}

/// Whether a load says nothing of packets that are sent, and of who receives them.
pub(crate) fn sends_nothing(load: &Load) -> bool {
    load.subscribers == 0
        && load.rate.is_none()
        && load.flows.is_none()
        && load.packets.is_none()
        && load.table.is_none()
        && load.from == LoadSource::Generator
        && load.link == Link::Direct
        && load.jitter.is_none()
}

/// The jobs that can be measured.
pub(crate) const NAMES: [&str; 5] = ["relay", "features", "router", "replicate", "netbench"];

/// What the job of this name lets an experiment file say.
pub(crate) fn stated(job: &str) -> Option<Stated> {
    match job {
        "relay" => Some(Stated {
            arms: relay::arms(),
            tunings: &[],
            check: relay::check_stated,
        }),
        "features" => Some(Stated {
            arms: features::arms(),
            tunings: &[],
            check: features::check_stated,
        }),
        "router" => Some(Stated {
            arms: router::arms(),
            tunings: &[],
            check: router::check_stated,
        }),
        "replicate" => Some(Stated {
            arms: replicate::arms(),
            tunings: &[],
            check: replicate::check_stated,
        }),
        "netbench" => Some(Stated {
            arms: netbench::arms(),
            tunings: &netbench::TUNINGS,
            check: netbench::check_stated,
        }),
        _ => None,
    }
}

/// What this machine can run of a plan's job.
pub fn fit(plan: &Plan) -> Result<Box<dyn Fit>> {
    let fit: Box<dyn Fit> = match plan.job.as_str() {
        "relay" => Box::new(relay::RelayFit::new(plan)?),
        "features" => Box::new(features::FeaturesFit::new(plan)),
        "router" => Box::new(router::RouterFit::new(plan)),
        "replicate" => Box::new(replicate::ReplicateFit),
        "netbench" => Box::new(netbench::NetbenchFit::new(plan)),
        other => anyhow::bail!("{}: no job is called {other:?}", plan.name),
    };
    match plan.environment.as_str() {
        NATIVE => Ok(fit),
        other => Ok(Box::new(PlacedFit::new(&plan.job, fit, other)?)),
    }
}

/// The bench of a plan's job.
pub fn bench(plan: &Plan) -> Result<Box<dyn Bench>> {
    match plan.job.as_str() {
        "relay" => Ok(Box::new(relay::RelayBench::new()?)),
        "features" => Ok(Box::new(features::FeaturesBench::new()?)),
        "router" => Ok(Box::new(router::RouterBench::new(plan)?)),
        "replicate" => Ok(Box::new(replicate::ReplicateBench::new()?)),
        "netbench" => Ok(Box::new(netbench::NetbenchBench::new(plan)?)),
        other => anyhow::bail!("{}: no job is called {other:?}", plan.name),
    }
}
