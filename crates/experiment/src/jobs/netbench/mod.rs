//! Trials of netbench: what links, places and tools make of the same test between two hosts.

mod arm;
mod stated;
mod tool;
mod trial;

use anyhow::Result;
use datapath::Missing;
use probes::foreign::Foreign;
use testbed::Kept;

use self::arm::Arm;
pub(crate) use self::stated::check_stated;
use super::noise::Beside;
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::idle::{self, Awake};
use crate::plan::Load;

/// Every arm there is.
pub(crate) fn arms() -> Vec<&'static str> {
    Arm::ALL.iter().map(|arm| arm.name).collect()
}

/// What of the netbench job this machine can run.
#[derive(Debug)]
pub(crate) struct NetbenchFit;

impl Fit for NetbenchFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        Arm::find(arm).map_or(Ok(()), Arm::check)
    }

    fn check_load(&self, _load: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        let (Some(found), Some(test)) = (Arm::find(arm), stated::test(load)) else {
            return Ok(());
        };
        match found.tool.lacks(test, load) {
            None => Ok(()),
            Some(what) => Err(Missing::new(
                format!("{arm} {what}"),
                "leave out the arm or the load",
            )),
        }
    }
}

/// Runs netbench trials.
#[derive(Debug)]
pub struct NetbenchBench {
    beside: Beside,
    foreign: Foreign,
    /// A virtual machine boots once for all trials that it serves.
    _kept: Kept,
}

impl NetbenchBench {
    pub fn new() -> Result<Self> {
        Ok(Self {
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
            _kept: Kept::new(),
        })
    }
}

impl Bench for NetbenchBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.beside.wait()?;
        let arm = Arm::known(spec.arm)?;
        let policy = arm.idle.unwrap_or(spec.idle);
        let awake = Awake::start(policy)?;
        let (stage, mut outcome) = trial::run(&self.foreign, arm, spec)?;
        outcome.environment.extend(stage.settings());
        let kept = idle::name(policy).into();
        outcome.environment.insert("idle".to_owned(), kept);
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which is no noise
        // beside the trial.
        self.beside.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
