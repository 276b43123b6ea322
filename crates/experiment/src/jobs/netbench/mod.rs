//! Trials of netbench: what links, places and tools make of the same test between two hosts.

mod arm;
mod stated;
mod tool;
mod trial;
mod tuning;

use anyhow::Result;
use datapath::Missing;
use probes::foreign::Foreign;

use self::arm::Arm;
pub(crate) use self::stated::check_stated;
use self::tuning::{Tuned, Tuning};
use super::noise::Beside;
use super::placed::{Inside, on_no_host};
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::idle::{self, Awake};
use crate::plan::Load;

/// Every arm there is.
pub(crate) fn arms() -> Vec<&'static str> {
    Arm::ALL.iter().map(|arm| arm.name).collect()
}

/// What an arm may be tuned by: it follows the arm's name after a plus.
pub(crate) const TUNINGS: [&str; Tuning::ALL.len()] = {
    let mut names = [""; Tuning::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Tuning::ALL[at].name();
        at += 1;
    }
    names
};

/// What of the netbench job this machine can run.
#[derive(Debug)]
pub(crate) struct NetbenchFit;

impl Fit for NetbenchFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        Tuned::find(arm).map_or(Ok(()), |tuned| tuned.check())
    }

    fn check_load(&self, _load: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        let (Some(found), Some(test)) = (Tuned::find(arm), stated::test(load)) else {
            return Ok(());
        };
        match found.lacks(test, load) {
            None => Ok(()),
            Some(what) => Err(Missing::new(
                format!("{arm} {what}"),
                "leave out the arm or the load",
            )),
        }
    }

    fn placed<'a>(&self, _arm: &'a str) -> Result<Option<&'a str>, Missing> {
        Err(on_no_host("netbench's arms are environments themselves"))
    }

    fn applies_in(&self, arm: &str, _load: &Load, _inside: &Inside) -> Result<(), Missing> {
        self.placed(arm).map(drop)
    }
}

/// Runs netbench trials.
#[derive(Debug)]
pub struct NetbenchBench {
    beside: Beside,
    foreign: Foreign,
}

impl NetbenchBench {
    pub fn new() -> Result<Self> {
        Ok(Self {
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
        })
    }
}

impl Bench for NetbenchBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.beside.wait()?;
        let tuned = Tuned::known(spec.arm)?;
        let policy = tuned.arm.idle.unwrap_or(spec.idle);
        let awake = Awake::start(policy)?;
        let (stage, mut outcome) = trial::run(&self.foreign, &tuned, spec)?;
        outcome.environment.extend(stage.bed().facts());
        let kept = idle::name(policy).into();
        outcome.environment.insert("idle".to_owned(), kept);
        let tunings = tuned.names().into();
        outcome.environment.insert("tuning".to_owned(), tunings);
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which is no noise
        // beside the trial.
        let _asleep = stage.bed().asleep()?;
        self.beside.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
