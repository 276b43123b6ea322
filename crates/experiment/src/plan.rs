//! The contents of an experiment file: arms, loads, questions and the number of blocks. Written before the
//! experiment runs; nothing here is decided from results.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use report::record::{Build, Question};
use units::Span;

use crate::arms::CustomArm;
use crate::environment;
use crate::host::RemoteHost;
use crate::idle::IdlePolicy;
use crate::load::Load;

/// An experiment; `crate::file` reads and checks the file that states it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub job: String,
    /// One line for `--list`.
    pub about: String,
    /// The arm every other is compared with; it runs three times a block.
    pub baseline: String,
    pub arms: Vec<String>,
    /// Where the device under test is: one of [`testbed::KINDS`].
    pub environment: String,
    pub blocks: usize,
    /// How the CPUs are kept from sleeping deeply.
    pub idle: IdlePolicy,
    /// Metrics that carry the experiment's claims; all others are corrected for their number.
    pub primary: Vec<String>,
    pub loads: Vec<Load>,
    pub questions: Vec<Question>,
    /// Published figures of the work this experiment reproduces.
    pub origin: Vec<String>,
    pub quick: Quick,
    /// Other machines, each of which is an arm.
    pub hosts: BTreeMap<String, RemoteHost>,
    /// Arms that are not the job's own, by their names.
    pub(crate) custom: BTreeMap<String, CustomArm>,
    /// Seconds a trial takes beside its load.
    pub(crate) overhead_s: f64,
}

/// The part of a plan that `--quick` runs.
#[derive(Clone, Debug)]
pub struct Quick {
    pub blocks: usize,
    pub arms: Vec<String>,
    /// Indices into the loads.
    pub loads: Vec<usize>,
    /// How long each of them lasts at most.
    pub duration: Option<Span>,
}

impl Plan {
    /// The arms that are builds of `lowroad` of their own, by name.
    pub fn builds(&self) -> impl Iterator<Item = (&str, &Build)> {
        let arms = self.arms.iter();
        arms.filter_map(|arm| match self.custom.get(arm)? {
            CustomArm::Build(build) => Some((arm.as_str(), &build.identity)),
            CustomArm::Program(_) => None,
        })
    }

    /// Adds an arm that is not the job's own.
    pub(crate) fn add(&mut self, arm: CustomArm, name: &str) {
        self.custom.insert(name.to_owned(), arm);
        self.arms.push(name.to_owned());
        self.quick.arms.push(name.to_owned());
    }

    /// The plan with its device under test in the environment of this name, where one is named.
    pub fn in_environment(mut self, name: Option<&str>) -> Result<Self> {
        if let Some(name) = name {
            self.environment = environment::find(name).map_err(anyhow::Error::msg)?;
        }
        Ok(self)
    }

    /// The plan as `--quick`, `--arms` and `--blocks` change it.
    pub fn narrowed(mut self, quick: bool, arms: &[String], blocks: Option<usize>) -> Result<Self> {
        if quick {
            self.blocks = self.quick.blocks;
            self.arms.retain(|arm| self.quick.arms.contains(arm));
            let mut index = 0;
            self.loads.retain(|_| {
                index += 1;
                self.quick.loads.contains(&(index - 1))
            });
            if let Some(longest) = self.quick.duration {
                for load in &mut self.loads {
                    load.set_duration(Span(load.duration().0.min(longest.0)));
                }
            }
        }
        if !arms.is_empty() {
            if let Some(arm) = arms.iter().find(|arm| !self.arms.contains(arm)) {
                bail!(
                    "{} has no arm {arm:?}; it has: {}",
                    self.name,
                    self.arms.join(", ")
                );
            }
            self.arms.retain(|arm| arms.contains(arm));
            if !self.arms.contains(&self.baseline) {
                self.baseline = self.arms[0].clone();
                // Their words name the baseline of the file.
                for question in &mut self.questions {
                    question.headline = None;
                }
            }
        }
        self.blocks = blocks.unwrap_or(self.blocks);
        Ok(self)
    }

    /// About how long a trial takes: its load, and setting up and taking down the topology.
    pub fn trial_seconds(&self) -> f64 {
        let sum: f64 = self.loads.iter().map(Load::seconds).sum();
        sum / self.loads.len().max(1) as f64 + self.overhead_s
    }

    /// About how long `trials` trials take, with what is set up once for all of them.
    #[expect(clippy::cast_precision_loss, reason = "an estimate of a small count")]
    pub(crate) fn seconds_of(&self, trials: usize) -> f64 {
        match trials {
            0 => 0.0,
            trials => self.set_up_seconds() + trials as f64 * self.trial_seconds(),
        }
    }

    /// About how long the bench takes for what it sets up once: for the job's own arms together, and for each other arm.
    #[expect(clippy::cast_precision_loss, reason = "an estimate of a small count")]
    fn set_up_seconds(&self) -> f64 {
        let shared = self.loads.iter().filter_map(Load::shared_set_up);
        let shared: BTreeMap<String, f64> = shared.map(|one| (one.key, one.seconds)).collect();
        let is_custom = |arm: &&String| self.custom.contains_key(*arm);
        let custom = self.arms.iter().filter(is_custom).count();
        let builds = custom + usize::from(custom < self.arms.len());
        builds as f64 * shared.values().sum::<f64>()
    }

    /// About how long the whole experiment takes.
    pub fn seconds(&self) -> f64 {
        // The baseline runs two more times a block.
        self.seconds_of(self.blocks * self.loads.len() * (self.arms.len() + 2))
    }

    /// About how long `--quick` takes.
    pub fn quick_seconds(&self) -> f64 {
        self.clone()
            .narrowed(true, &[], None)
            .map_or(0.0, |plan| plan.seconds())
    }
}

#[cfg(test)]
mod tests;
