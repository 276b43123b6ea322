//! Trials of replicate: what it costs programs that their files are followed, by `lowroad` and by
//! what else could see their writes; and how soon copies have what was written.

mod arm;
mod chain;
mod client;
mod cost;
mod lag;
mod load;
mod memory_disk;
mod requests;
mod server;
mod service;
mod steady;
mod transport;
mod tree;
mod writer;
mod writes;

use std::ffi::OsString;

use anyhow::{Context, Result};
use datapath::Missing;
use probes::occupancy::OccupancyProbe;

use self::arm::{Arm, Follower};
use self::chain::Source;
use self::load::{Load, Measure, TrialSpec};
use self::memory_disk::MemoryDisk;
use self::transport::Transport;
pub use self::writer::serve;
use crate::arms::{FOLDER, HERE, Placeholder, ProgramArm, ProgramTerms};
use crate::bench::{BuildCheck, JobBench, JobRequirements};
use crate::idle::IdleGuard;
use crate::noise::NoiseMonitor;
use crate::outcome::Outcome;
use crate::placement::{Placement, on_no_host};
use crate::plan::Plan;
use crate::program::program;

/// The placeholder of a copy: what refers to it is measured for its lag.
const COPY: &str = "copy";
/// The placeholders in commands of programs that follow a tree.
const PLACEHOLDERS: &[Placeholder] = &[
    Placeholder::new("tree", "the folder whose files are written to"),
    Placeholder::new(COPY, "the folder in which the program keeps a copy of them"),
    FOLDER,
    HERE,
];

/// The requirements of the arms and loads of replicate.
#[derive(Debug)]
pub(crate) struct ReplicateRequirements;

impl JobRequirements<Load> for ReplicateRequirements {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        if !nix::unistd::geteuid().is_root() {
            let what = "a file system of its own needs root";
            return Err(Missing::new(what, "run with sudo"));
        }
        program("mkfs.ext4", "apt-get install e2fsprogs")?;
        Transport::find(arm).map_or(Ok(()), Transport::check)?;
        Arm::find(arm).map_or(Ok(()), Arm::check)
    }

    fn check_load(&self, load: &Load, _measure: Measure) -> Result<(), Missing> {
        if load::Application::of(load).is_some() {
            server::check()?;
        }
        match load::by_curl(load) {
            true => program("curl", "apt-get install curl"),
            false => Ok(()),
        }
    }

    fn applies(&self, arm: &str, load: &Load, _measure: Measure) -> Result<(), Missing> {
        if load::is_lag(load) == Transport::find(arm).is_some() {
            return Ok(());
        }
        let remedy = "file, tcp and nats measure lag; all others measure writes and requests";
        Err(Missing::new(
            format!("{arm} does not have this measure"),
            remedy,
        ))
    }

    fn check_program(&self, program: &ProgramArm) -> Result<(), Missing> {
        // The machine needs what it needs for the bare tree.
        self.check(Arm::None.name())?;
        program.check()
    }

    fn program_applies(
        &self,
        program: &ProgramArm,
        load: &Load,
        _measure: Measure,
    ) -> Result<(), Missing> {
        let refuse = |what: &str, remedy: &str| Err(Missing::new(what, remedy));
        match (load::is_lag(load), program.uses(COPY)) {
            (true, false) => refuse(
                "it keeps no copy",
                "use {copy} in its commands, or see the loads of writes and requests",
            ),
            (true, true) if load::count(load, load::COPIES) > 1 => {
                refuse("it keeps one copy", "see the loads with one copy")
            }
            (true, true) if load::in_place(load) => refuse(
                "in-place is a setting of lowroad's own copies",
                "see the loads without it",
            ),
            (false, true) => refuse("it keeps a copy", "lag measures how late that is"),
            _ => Ok(()),
        }
    }

    /// The program's own commands, which then print their help.
    fn build_checks(
        &self,
        build: &BuildCheck<'_>,
        load: &Load,
        _measure: Measure,
    ) -> Result<Vec<Vec<OsString>>> {
        let (tree, out) = (build.folder.join("tree"), build.folder);
        let capture = arm::arguments(Arm::find(build.arm).unwrap_or(Arm::Data), &tree, out);
        let mut commands = vec![capture];
        if Transport::find(build.arm).is_some() {
            let in_place = load::in_place(load);
            commands.push(chain::apply_arguments(&out.join("log"), out, in_place));
        }
        for command in &mut commands {
            command.push("--help".into());
        }
        Ok(commands)
    }

    fn datapath<'a>(&self, _arm: &'a str) -> Result<Option<&'a str>, Missing> {
        Err(on_no_host(
            "replicate follows a file system of this machine, and runs on no host of a test bed",
        ))
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

/// Runs replicate trials.
#[derive(Debug)]
pub(crate) struct ReplicateBench {
    monitor: NoiseMonitor,
    foreign: OccupancyProbe,
    disk: MemoryDisk,
}

impl JobBench for ReplicateBench {
    const NAME: &'static str = "replicate";
    const PROGRAMS: ProgramTerms = ProgramTerms {
        placeholders: PLACEHOLDERS,
        ..ProgramTerms::NONE
    };

    type Load = Load;
    type Requirements = ReplicateRequirements;

    fn arms() -> Vec<&'static str> {
        let arms = Arm::ALL.iter().map(|arm| arm.name());
        arms.chain(Transport::ALL.iter().map(|arm| arm.name()))
            .collect()
    }

    fn runs_lowroad(arm: &str) -> bool {
        Arm::find(arm).is_some_and(Arm::is_own) || Transport::find(arm).is_some()
    }

    fn check(load: &Load, measure: Measure) -> Result<(), String> {
        load::check(load, measure)
    }

    fn requirements(_plan: &Plan) -> Result<ReplicateRequirements> {
        Ok(ReplicateRequirements)
    }

    fn new(_plan: &Plan) -> Result<Self> {
        Ok(Self {
            monitor: NoiseMonitor::new()?,
            foreign: OccupancyProbe::attach()?,
            disk: MemoryDisk::new()?,
        })
    }

    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let awake = IdleGuard::start(spec.idle)?;
        let unknown = || format!("no arm {}", spec.arm);
        let arm = match spec.program {
            Some(_) => Some(Arm::Program),
            None => Arm::find(spec.arm),
        };
        let follower = || {
            Ok::<_, anyhow::Error>(Follower {
                arm: arm.with_context(unknown)?,
                lowroad: spec.lowroad,
                program: spec.program,
            })
        };
        let mut outcome = match spec.measure {
            Measure::Writes => writes::trial(self, follower()?, spec.load)?,
            Measure::Requests => requests::trial(self, follower()?, spec.load)?,
            Measure::Lag => {
                let source = match spec.program {
                    Some(program) => Source::Program(program),
                    None => {
                        let transport = Transport::find(spec.arm).with_context(unknown)?;
                        Source::Lowroad(transport, spec.lowroad)
                    }
                };
                lag::trial(self, source, spec.load)?
            }
        };
        drop(awake);
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
