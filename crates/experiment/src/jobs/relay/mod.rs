//! Trials of the relay: seven datapaths, the bare link, and the peers.

mod application;
mod applies;
mod change;
mod cpu;
mod delay;
mod fit;
mod losses;
mod media;
mod peers;
mod process;
mod stage;
mod stated;
mod throughput;
mod video;

use anyhow::{Result, bail};
use loadgen::{Amount, Backend, Load as Offered};
use probes::foreign::Foreign;

pub(crate) use self::delay::on_stage as delay_on;
pub(crate) use self::fit::RelayFit;
use self::stage::Layout;
pub(crate) use self::stage::Stage;
pub(crate) use self::stated::{arms, check as check_stated};
use super::noise::Beside;
use super::placed::NATIVE;
use super::{Bench, Outcome, TrialSpec};
use crate::idle::Awake;
use crate::plan::{Load, Measure};

/// The bare link, without a relay.
const FLOOR: &str = "floor";
/// The floor, measured by probes that neither stamp nor match: what the probes themselves cost.
const NULL_PROBE: &str = "null-probe";

/// Bytes of payload where the load does not say.
const PAYLOAD: usize = 200;

/// Runs relay trials.
#[derive(Debug)]
pub struct RelayBench {
    /// Sends and, on machines with more than two CPUs, sinks.
    sender_cpu: usize,
    relay_cpu: usize,
    beside: Beside,
    foreign: Foreign,
    video: media::Source,
}

impl RelayBench {
    pub fn new() -> Result<Self> {
        let [sender_cpu, relay_cpu] = crate::cpus::ends()?;
        Ok(Self {
            sender_cpu,
            relay_cpu,
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
            video: media::Source::default(),
        })
    }

    fn layout<'a>(&self, spec: &TrialSpec<'a>) -> Layout<'a> {
        Layout {
            arm: spec.arm,
            load: spec.load,
            sender_cpu: self.sender_cpu,
            relay_cpu: self.relay_cpu,
            environment: spec.environment,
        }
    }

    /// The bare link under this load.
    pub(crate) fn bare<'a>(&self, load: &'a Load) -> Layout<'a> {
        Layout {
            arm: FLOOR,
            load,
            sender_cpu: self.sender_cpu,
            relay_cpu: self.relay_cpu,
            environment: NATIVE,
        }
    }

    /// The CPU that relays run on.
    pub(crate) fn relay_cpu(&self) -> usize {
        self.relay_cpu
    }

    /// A load from the stage's sender to its ingest: through a socket, as fast as it goes.
    pub(crate) fn offered(&self, stage: &Stage, load: &Load, run: u32) -> Result<Offered> {
        let (device, next) = stage.first_hop()?;
        Ok(Offered {
            backend: Backend::Socket,
            ifindex: device.ifindex,
            source: stage.sender,
            destinations: vec![stage.ingest],
            source_mac: device.mac,
            destination_mac: next.mac,
            payload_len: load.payload.map_or(PAYLOAD, |size| size.0),
            rate: None,
            amount: Amount::Time(load.duration.0),
            burst: 1,
            run,
            cpu: Some(self.sender_cpu),
            fifo: false,
        })
    }
}

impl Bench for RelayBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        self.beside.wait()?;
        let awake = Awake::start(spec.idle)?;
        let (mut stage, mut outcome) = match spec.measure {
            Measure::Delay => delay::trial(self, spec),
            Measure::Throughput => throughput::trial(self, spec),
            Measure::Cpu => cpu::trial(self, spec),
            Measure::Change => change::trial(self, spec),
            Measure::Video => video::trial(self, spec),
            Measure::File
            | Measure::Goodput
            | Measure::RowLatency
            | Measure::Freed
            | Measure::Lookup
            | Measure::Updates
            | Measure::Build
            | Measure::Forward
            | Measure::Process
            | Measure::Writes
            | Measure::Requests
            | Measure::Lag
            | Measure::Exchange => {
                bail!("a relay is not measured so")
            }
        }?;
        stage.note(&mut outcome)?;
        stage.stop();
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which is no noise
        // beside the trial.
        let _asleep = stage.bed.asleep()?;
        self.beside.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
