//! Trials of netbench: what links, places and tools make of the same test between two hosts.

mod arm;
mod stated;
mod tool;
mod trial;
mod tuning;

use anyhow::Result;
use datapath::Missing;
use probes::account::Usage;
use probes::foreign::Foreign;

use self::arm::Arm;
pub(crate) use self::stated::check_stated;
use self::trial::Left;
use self::tuning::{Tuned, Tuning};
use super::noise::Beside;
use super::placed::{Inside, on_no_host};
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::idle::{self, Awake};
use crate::plan::{IdlePolicy, Load};

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
    idle: Option<Idle>,
    /// What the last trial's hosts left to take down.
    left: Option<Left>,
}

/// What the machine does when nothing is asked of it: of all trials of a block under one load and policy.
#[derive(Debug)]
struct Idle {
    of: (usize, String, IdlePolicy),
    usage: Usage,
}

impl NetbenchBench {
    pub fn new() -> Result<Self> {
        Ok(Self {
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
            idle: None,
            left: None,
        })
    }

    /// The same, with the virtual machines of these arms booted, which takes no longer than one does.
    pub(crate) fn of(arms: &[String]) -> Result<Self> {
        let servers = arms.iter().filter_map(|arm| Tuned::find(arm));
        let servers: Vec<_> = servers.map(|tuned| trial::server(&tuned)).collect();
        testbed::boot_ahead(&servers, trial::LINKS);
        Self::new()
    }
}

impl Bench for NetbenchBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.beside.wait()?;
        let tuned = Tuned::known(spec.arm)?;
        let policy = tuned.arm.idle.unwrap_or(spec.idle);
        let awake = Awake::start(policy)?;
        let of = (spec.block, spec.load.label(), policy);
        let known = self.idle.take().filter(|idle| idle.of == of);
        let was_known = known.is_some();
        let mut idle = known.map(|idle| idle.usage);
        let left = self.left.take();
        let (stage, mut outcome) = trial::run(&self.foreign, &tuned, spec, &mut idle, left)?;
        outcome.environment.extend(stage.bed().facts());
        let kept = idle::name(policy).into();
        outcome.environment.insert("idle".to_owned(), kept);
        let tunings = tuned.names().into();
        outcome.environment.insert("tuning".to_owned(), tunings);
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which is no noise
        // beside the trial.
        let asleep = stage.bed().asleep()?;
        self.beside.note(&self.foreign, &mut outcome)?;
        drop(asleep);
        self.left = Some(stage.leave());
        // What was watched before a disturbed trial may have been disturbed as well.
        let counts = was_known || outcome.disturbances.is_empty();
        self.idle = idle.filter(|_| counts).map(|usage| Idle { of, usage });
        Ok(outcome)
    }
}
