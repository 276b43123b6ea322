//! Trials of netbench: what links, places and tools make of the same test between two hosts.

mod arm;
mod asking;
mod away;
mod line;
mod named;
mod own;
mod stated;
mod tool;
mod trial;
mod tuning;

use std::collections::BTreeMap;

use anyhow::Result;
use datapath::Missing;
use probes::account::Usage;
use probes::foreign::Foreign;

use self::arm::Arm;
pub use self::away::Away;
pub(crate) use self::stated::check_stated;
use self::trial::Left;
use self::tuning::{Tuned, Tuning};
use super::noise::Beside;
use super::placed::{Inside, on_no_host};
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::idle::{self, Awake};
use crate::plan::{IdlePolicy, Load, Measure, Plan};

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
pub(crate) struct NetbenchFit {
    hosts: BTreeMap<String, Away>,
    measure: Measure,
}

impl NetbenchFit {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            hosts: plan.hosts.clone(),
            measure: plan.measure,
        }
    }
}

impl Fit for NetbenchFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match self.hosts.get(arm) {
            Some(away) => away.check(arm),
            None => Tuned::find(arm).map_or(Ok(()), |tuned| tuned.check()),
        }
    }

    fn check_load(&self, _load: &Load) -> Result<(), Missing> {
        Ok(())
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        let lacks = match self.hosts.contains_key(arm) {
            true => (load.measure.unwrap_or(self.measure) == Measure::Cpu)
                .then(|| "is another machine, whose CPU is not seen from here".to_owned()),
            false => Tuned::find(arm)
                .zip(stated::test(load))
                .and_then(|(found, test)| found.lacks(test, load)),
        };
        match lacks {
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
    hosts: BTreeMap<String, Away>,
    beside: Beside,
    foreign: Foreign,
    idle: Idle,
    /// What the last trial's hosts left to take down.
    left: Option<Left>,
}

/// What the machine does when nothing is asked of it, watched once for all trials of a block under one load and
/// policy.
#[derive(Debug, Default)]
struct Idle(Option<(Of, Usage)>);

/// Block, load and policy.
type Of = (usize, String, IdlePolicy);

impl Idle {
    fn take(&mut self, of: &Of) -> Option<Usage> {
        let (_, usage) = self.0.take().filter(|(known, _)| known == of)?;
        Some(usage)
    }

    /// Keeps what a trial took, or watched before it: then it may have been disturbed as the trial was.
    fn keep(&mut self, of: Of, taken: bool, usage: Usage, outcome: &Outcome) {
        let clean = outcome.disturbances.is_empty() && usage.violations().is_empty();
        if taken || clean {
            self.0 = Some((of, usage));
        }
    }
}

impl NetbenchBench {
    /// With the virtual machines of the plan's arms booted, which takes no longer than one does.
    pub(crate) fn new(plan: &Plan) -> Result<Self> {
        let servers = plan.arms.iter().filter_map(|arm| Tuned::find(arm));
        let servers: Vec<_> = servers.map(|tuned| trial::server(&tuned)).collect();
        testbed::boot_ahead(&servers, trial::LINKS);
        Ok(Self {
            hosts: plan.hosts.clone(),
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
            idle: Idle::default(),
            left: None,
        })
    }

    /// A trial with both hosts here.
    fn here(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let tuned = Tuned::known(spec.arm)?;
        let policy = tuned.arm.idle.unwrap_or(spec.idle);
        let awake = Awake::start(policy)?;
        let of = (spec.block, spec.load.label(), policy);
        let mut idle = self.idle.take(&of);
        let taken = idle.is_some();
        let left = self.left.take();
        let (stage, mut outcome) = trial::run(&self.foreign, &tuned, spec, &mut idle, left)?;
        outcome.environment.extend(stage.bed().facts());
        note_idle(policy, &mut outcome);
        let tunings = tuned.names().into();
        outcome.environment.insert("tuning".to_owned(), tunings);
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which is no noise
        // beside the trial.
        let asleep = stage.bed().asleep()?;
        self.beside.note(&self.foreign, &mut outcome)?;
        drop(asleep);
        self.left = Some(stage.leave());
        if let Some(usage) = idle {
            self.idle.keep(of, taken, usage, &outcome);
        }
        Ok(outcome)
    }

    /// A trial with the server on another machine: the noise that is noted is this one's alone.
    fn away(&mut self, away: &Away, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.left = None;
        let awake = Awake::start(spec.idle)?;
        let mut outcome = away.measure(&self.foreign, spec)?;
        note_idle(spec.idle, &mut outcome);
        drop(awake);
        self.beside.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}

fn note_idle(policy: IdlePolicy, outcome: &mut Outcome) {
    let kept = idle::name(policy).into();
    outcome.environment.insert("idle".to_owned(), kept);
}

impl Bench for NetbenchBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.beside.wait()?;
        match self.hosts.get(spec.arm).cloned() {
            Some(away) => self.away(&away, spec),
            None => self.here(spec),
        }
    }
}

#[cfg(test)]
mod tests {
    use probes::account::CpuUsage;

    use super::*;

    fn usage(resyncs: u64) -> Usage {
        let mut times = std::array::from_fn(|_| 0);
        times[0] = 200_000_000;
        Usage {
            wall_ns: times[0],
            cpus: vec![CpuUsage { cpu: 0, times }],
            groups: std::array::from_fn(|_| times),
            events: 0,
            switches: 0,
            resyncs,
            unseen: 0,
            programs: Vec::new(),
            own_ns: 0,
            misses: 0,
        }
    }

    #[test]
    fn the_idle_machine_is_known_for_a_block_and_a_load_and_not_from_a_disturbed_trial() {
        let of = |block: usize, load: &str| (block, load.to_owned(), IdlePolicy::Burner);
        let clean = Outcome::default();
        let disturbed = Outcome {
            disturbances: vec!["foreign CPU".to_owned()],
            ..Outcome::default()
        };
        let mut idle = Idle::default();
        assert_eq!(idle.take(&of(0, "rr")), None);
        idle.keep(of(0, "rr"), false, usage(0), &disturbed);
        assert_eq!(idle.take(&of(0, "rr")), None, "it was disturbed as well");
        idle.keep(of(0, "rr"), false, usage(1), &clean);
        assert_eq!(idle.take(&of(0, "rr")), None, "the account broke");
        idle.keep(of(0, "rr"), false, usage(0), &clean);
        assert_eq!(idle.take(&of(0, "rr")), Some(usage(0)));
        idle.keep(of(0, "rr"), true, usage(0), &disturbed);
        assert_eq!(idle.take(&of(0, "rr")), Some(usage(0)), "it is older");
        for other in [
            of(1, "rr"),
            of(0, "stream"),
            (0, "rr".to_owned(), IdlePolicy::None),
        ] {
            idle.keep(of(0, "rr"), true, usage(0), &clean);
            assert_eq!(idle.take(&other), None);
            assert_eq!(idle.take(&of(0, "rr")), None, "it is forgotten");
        }
    }
}
