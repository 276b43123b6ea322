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

use anyhow::{Context, Result};
use datapath::Missing;
use probes::occupancy::OccupancyProbe;

use self::arm::Arm;
use self::load::{Load, Measure, TrialSpec};
use self::memory_disk::MemoryDisk;
use self::transport::Transport;
pub use self::writer::serve;
use crate::bench::{JobBench, JobRequirements};
use crate::idle::IdleGuard;
use crate::noise::NoiseMonitor;
use crate::outcome::Outcome;
use crate::placement::{Placement, on_no_host};
use crate::plan::Plan;
use crate::program::program;

/// What the arms and loads of replicate need of this machine.
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
        Err(Missing::new(format!("{arm} is not measured so"), remedy))
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

    type Load = Load;
    type Requirements = ReplicateRequirements;

    fn arms() -> Vec<&'static str> {
        let arms = Arm::ALL.iter().map(|arm| arm.name());
        arms.chain(Transport::ALL.iter().map(|arm| arm.name()))
            .collect()
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
        let followed = || Arm::find(spec.arm).with_context(unknown);
        let mut outcome = match spec.measure {
            Measure::Writes => writes::trial(self, followed()?, spec.load)?,
            Measure::Requests => requests::trial(self, followed()?, spec.load)?,
            Measure::Lag => {
                let arm = Transport::find(spec.arm).with_context(unknown)?;
                lag::trial(self, arm, spec.load)?
            }
        };
        drop(awake);
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
