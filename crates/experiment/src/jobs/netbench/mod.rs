//! Trials of netbench: what links, places and tools make of the same test between two hosts.

mod arm;
mod client;
mod client_report;
mod line;
mod load;
pub(crate) mod metric_names;
mod path;
mod program;
mod remote;
mod tool;
mod trial;
mod tuning;

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::{Context as _, Result};
use datapath::Missing;
use probes::account::Usage;
use probes::occupancy::OccupancyProbe;

use self::arm::Arm;
use self::load::{Load, Measure, TrialSpec};
use self::remote::RemoteServer;
use self::tool::Tool;
use self::trial::StageTeardown;
use self::tuning::{TunedArm, Tuning};
use crate::arms::{ProgramArm, ProgramTerms};
use crate::bench::{BuildCheck, JobBench, JobRequirements};
use crate::idle::{IdleGuard, IdlePolicy};
use crate::load::{JobLoad, JobMeasure};
use crate::noise::NoiseMonitor;
use crate::outcome::Outcome;
use crate::placement::{Placement, on_no_host};
use crate::plan::Plan;

/// The tunings of an arm: each follows the arm's name after a plus.
const TUNINGS: [&str; Tuning::ALL.len()] = {
    let mut names = [""; Tuning::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Tuning::ALL[at].name();
        at += 1;
    }
    names
};

/// The requirements of the arms and loads of netbench.
#[derive(Debug)]
pub(crate) struct NetbenchRequirements {
    remote: BTreeMap<String, RemoteServer>,
}

impl JobRequirements<Load> for NetbenchRequirements {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match self.remote.get(arm) {
            Some(server) => server.check(arm),
            None => TunedArm::find(arm).map_or(Ok(()), |tuned| tuned.check()),
        }
    }

    fn applies(&self, arm: &str, load: &Load, measure: Measure) -> Result<(), Missing> {
        let lacks = match self.remote.contains_key(arm) {
            true if measure.sees_all_cpus() => {
                Some("is another machine, whose CPU is not seen from here".to_owned())
            }
            true => load
                .path
                .as_ref()
                .map(|_| "is another machine: the path to it is the network's".to_owned()),
            false => TunedArm::find(arm)
                .zip(load.test())
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

    /// The client's own command, which then prints its help, and the server's.
    fn build_checks(
        &self,
        build: &BuildCheck<'_>,
        load: &Load,
        _measure: Measure,
    ) -> Result<Vec<Vec<OsString>>> {
        let test = load.test().context("a load without a test")?;
        let client = tool::own_client(build.lowroad, "192.0.2.1:1", (test, load), load.duration.0);
        let client = client.get_args().map(OsString::from).collect();
        let server = ["netbench", "serve", "--listen", "192.0.2.1:1"];
        let server = server.map(OsString::from).to_vec();
        let help = |mut words: Vec<OsString>| {
            words.push("--help".into());
            words
        };
        Ok(vec![help(client), help(server)])
    }

    fn program_applies(
        &self,
        program: &ProgramArm,
        load: &Load,
        measure: Measure,
    ) -> Result<(), Missing> {
        program::applies(program, load, measure)
    }

    fn datapath<'a>(&self, _arm: &'a str) -> Result<Option<&'a str>, Missing> {
        Err(on_no_host("netbench's arms are environments themselves"))
    }

    fn applies_in(
        &self,
        arm: &str,
        _load: &Load,
        _measure: Measure,
        _placement: &Placement,
    ) -> Result<(), Missing> {
        self.datapath(arm).map(drop)
    }
}

/// The servers of a plan's other machines.
fn remote_servers(plan: &Plan) -> BTreeMap<String, RemoteServer> {
    let hosts = plan.hosts.iter();
    let servers = hosts.map(|(name, host)| (name.clone(), RemoteServer::new(host.clone())));
    servers.collect()
}

/// Runs netbench trials.
#[derive(Debug)]
pub(crate) struct NetbenchBench {
    remote: BTreeMap<String, RemoteServer>,
    monitor: NoiseMonitor,
    foreign: OccupancyProbe,
    idle: Idle,
    /// The hosts of the last trial, which are still to be taken down.
    teardown: Option<StageTeardown>,
}

/// The usage of the idle machine, measured once for all trials of a block under one load and policy.
#[derive(Debug, Default)]
struct Idle(Option<(IdleKey, Usage)>);

/// The block, the load and the policy of an idle window.
type IdleKey = (usize, String, IdlePolicy);

impl Idle {
    fn take(&mut self, of: &IdleKey) -> Option<Usage> {
        let (_, usage) = self.0.take().filter(|(known, _)| known == of)?;
        Some(usage)
    }

    /// Keeps what a trial took, or watched before it: then it may have been disturbed as the trial was.
    fn keep(&mut self, of: IdleKey, taken: bool, usage: Usage, outcome: &Outcome) {
        let clean = outcome.flags.is_empty() && usage.violations().is_empty();
        if taken || clean {
            self.0 = Some((of, usage));
        }
    }
}

impl NetbenchBench {
    /// A trial with both hosts here.
    fn here(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let tuned = TunedArm::known(spec.arm)?;
        let policy = tuned.arm.idle.unwrap_or(spec.idle);
        let awake = IdleGuard::start(policy)?;
        let of = (spec.block, spec.load.label(), policy);
        let mut idle = self.idle.take(&of);
        let taken = idle.is_some();
        let teardown = self.teardown.take();
        let (stage, mut outcome) = trial::run(&self.foreign, &tuned, spec, &mut idle, teardown)?;
        outcome.environment.extend(stage.bed().facts());
        note_idle(policy, &mut outcome);
        let tunings = tuned.names().into();
        outcome.environment.insert("tuning".to_owned(), tunings);
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which must not count as
        // noise of the trial.
        let pause = stage.bed().pause_guests()?;
        self.monitor.note(&self.foreign, &mut outcome)?;
        drop(pause);
        self.teardown = Some(stage.leave());
        if let Some(usage) = idle {
            self.idle.keep(of, taken, usage, &outcome);
        }
        Ok(outcome)
    }

    /// A trial of a server and a client that are external programs.
    fn program(&mut self, program: &ProgramArm, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.teardown = None;
        let awake = IdleGuard::start(spec.idle)?;
        let (bed, mut outcome) = program::trial(&self.foreign, program, spec)?;
        note_idle(spec.idle, &mut outcome);
        drop(awake);
        // While the hosts stand, as in trials of ours.
        self.monitor.note(&self.foreign, &mut outcome)?;
        drop(bed);
        Ok(outcome)
    }

    /// A trial with the server on another machine: the noise that is noted is this one's alone.
    fn remote(&mut self, server: &RemoteServer, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.teardown = None;
        let awake = IdleGuard::start(spec.idle)?;
        let mut outcome = server.measure(&self.foreign, spec)?;
        note_idle(spec.idle, &mut outcome);
        drop(awake);
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}

fn note_idle(policy: IdlePolicy, outcome: &mut Outcome) {
    let kept = policy.name().into();
    outcome.environment.insert("idle".to_owned(), kept);
}

impl JobBench for NetbenchBench {
    const NAME: &'static str = "netbench";
    const AGENT: bool = true;
    const REMOTE_HOSTS: bool = true;
    const PROGRAMS: ProgramTerms = program::TERMS;

    type Load = Load;
    type Requirements = NetbenchRequirements;

    fn arms() -> Vec<&'static str> {
        Arm::ALL.iter().map(|arm| arm.name).collect()
    }

    /// Both ends of a build are `lowroad netbench`, which other environments do not have.
    fn runs_lowroad(arm: &str) -> bool {
        let arm = Arm::find(arm);
        arm.is_some_and(|arm| arm.tool == Tool::Lowroad && arm.env == "native")
    }

    fn tunings() -> &'static [&'static str] {
        &TUNINGS
    }

    fn check(load: &Load, measure: Measure) -> Result<(), String> {
        load::check(load, measure)
    }

    fn requirements(plan: &Plan) -> Result<NetbenchRequirements> {
        let remote = remote_servers(plan);
        Ok(NetbenchRequirements { remote })
    }

    /// With the virtual machines of the plan's arms booted, which takes no longer than one does.
    fn new(plan: &Plan) -> Result<Self> {
        let servers = plan.arms.iter().filter_map(|arm| TunedArm::find(arm));
        let servers: Vec<_> = servers.map(|tuned| trial::server(&tuned)).collect();
        testbed::boot_ahead(&servers, trial::LINKS);
        Ok(Self {
            remote: remote_servers(plan),
            monitor: NoiseMonitor::new()?,
            foreign: OccupancyProbe::attach()?,
            idle: Idle::default(),
            teardown: None,
        })
    }

    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        if let Some(program) = spec.program {
            return self.program(program, spec);
        }
        match self.remote.get(spec.arm).cloned() {
            Some(server) => self.remote(&server, spec),
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
            flags: vec!["foreign CPU".to_owned()],
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
