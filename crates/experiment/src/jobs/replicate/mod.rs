//! Trials of replicate: what it costs programs that their files are followed, by `lowroad` and by
//! what else could see their writes; and how soon copies have what was written.

mod arm;
mod chain;
mod client;
mod cost;
mod lag;
mod place;
mod requests;
mod server;
mod service;
mod stated;
mod steady;
mod transport;
mod tree;
mod writer;
mod writes;

use anyhow::{Context, Result};
use datapath::Missing;
use probes::foreign::Foreign;

use self::arm::Arm;
use self::place::Place;
pub(crate) use self::stated::check_stated;
use self::transport::Transport;
pub use self::writer::serve;
use super::noise::Beside;
use super::placed::{Inside, on_no_host};
use super::program::program;
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::idle::Awake;
use crate::plan::{Load, Measure};

/// Every arm there is.
pub(crate) fn arms() -> Vec<&'static str> {
    let arms = Arm::ALL.iter().map(|arm| arm.name());
    arms.chain(Transport::ALL.iter().map(|arm| arm.name()))
        .collect()
}

/// What of the replicate job this machine can run.
#[derive(Debug)]
pub(crate) struct ReplicateFit;

impl Fit for ReplicateFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        if !nix::unistd::geteuid().is_root() {
            let what = "a file system of its own needs root";
            return Err(Missing::new(what, "run with sudo"));
        }
        program("mkfs.ext4", "apt-get install e2fsprogs")?;
        Transport::find(arm).map_or(Ok(()), Transport::check)?;
        Arm::find(arm).map_or(Ok(()), Arm::check)
    }

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
        if stated::Application::of(load).is_some() {
            server::check()?;
        }
        match stated::by_curl(load) {
            true => program("curl", "apt-get install curl"),
            false => Ok(()),
        }
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        if stated::is_lag(load) == Transport::find(arm).is_some() {
            return Ok(());
        }
        let remedy = "file, tcp and nats measure lag; all others measure writes and requests";
        Err(Missing::new(format!("{arm} is not measured so"), remedy))
    }

    fn placed<'a>(&self, _arm: &'a str) -> Result<Option<&'a str>, Missing> {
        Err(on_no_host(
            "replicate follows a file system of this machine, and runs on no host of a test bed",
        ))
    }

    fn applies_in(&self, arm: &str, _load: &Load, _inside: &Inside) -> Result<(), Missing> {
        self.placed(arm).map(drop)
    }
}

/// Runs replicate trials.
#[derive(Debug)]
pub struct ReplicateBench {
    beside: Beside,
    foreign: Foreign,
    place: Place,
}

impl ReplicateBench {
    pub fn new() -> Result<Self> {
        Ok(Self {
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
            place: Place::new()?,
        })
    }
}

impl Bench for ReplicateBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.beside.wait()?;
        let awake = Awake::start(spec.idle)?;
        let unknown = || format!("no arm {}", spec.arm);
        let followed = || Arm::find(spec.arm).with_context(unknown);
        let mut outcome = match spec.measure {
            Measure::Writes => writes::trial(self, followed()?, spec.load)?,
            Measure::Requests => requests::trial(self, followed()?, spec.load)?,
            _ => {
                let arm = Transport::find(spec.arm).with_context(unknown)?;
                lag::trial(self, arm, spec.load)?
            }
        };
        drop(awake);
        self.beside.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
