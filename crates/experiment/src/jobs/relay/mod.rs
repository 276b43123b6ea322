//! Trials of the relay: seven datapaths, the bare link, and external programs.

mod application;
mod applies;
mod change;
mod cpu;
mod delay;
pub(crate) mod load;
mod losses;
mod media;
mod process;
mod requirements;
mod stage;
mod throughput;
mod video;

use anyhow::Result;
use loadgen::{Amount, Backend, Load as Offered};
use probes::occupancy::OccupancyProbe;
use units::Size;

pub(crate) use self::delay::on_stage as delay_on;
pub(crate) use self::load::{Load, Measure, TrialSpec};
use self::requirements::RelayRequirements;
use self::stage::Layout;
pub(crate) use self::stage::Stage;
use crate::arms::{FOLDER, HERE, Placeholder, ProgramTerms};
use crate::bench::JobBench;
use crate::cpus;
use crate::environment::{self, NATIVE};
use crate::idle::IdleGuard;
use crate::noise::NoiseMonitor;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::presentation::FLOOR;
use crate::program::Lowroad;

/// The floor, measured by probes that neither stamp nor match: what the probes themselves cost.
const NULL_PROBE: &str = "null-probe";
/// The floor, where each packet is delayed by [`INJECTED_DELAY_NS`] more: a difference of known size.
pub(crate) const DELAYED_FLOOR: &str = "floor-50us";
/// The injected delay of each packet, in nanoseconds.
pub(crate) const INJECTED_DELAY_NS: u32 = 50_000;
/// The arms without a relay.
const BARE: [&str; 3] = [FLOOR, NULL_PROBE, DELAYED_FLOOR];

/// The placeholders in commands of programs that relay.
const PLACEHOLDERS: &[Placeholder] = &[
    Placeholder::new("listen", "where packets are sent to, as `ADDRESS:PORT`"),
    Placeholder::new("address", "the address of `{listen}`"),
    Placeholder::new("port", "the port of `{listen}`"),
    Placeholder::new(
        "subscribers",
        "every receiver, as `ADDRESS:PORT`; several words",
    ),
    Placeholder::new("subscriber", "the first receiver, where there is one only"),
    Placeholder::new("subscriber_address", "its address"),
    Placeholder::new("subscriber_port", "its port"),
    Placeholder::new("sender", "where packets are sent from, as `ADDRESS:PORT`"),
    Placeholder::new("egress_address", "the own address on the receivers' side"),
    Placeholder::new("interface", "the device on the sender's side"),
    Placeholder::new("egress_interface", "the device on the receivers' side"),
    FOLDER,
    HERE,
];

/// Bytes of payload where the load does not say.
const PAYLOAD: usize = 200;

/// Runs relay trials.
#[derive(Debug)]
pub(crate) struct RelayBench {
    /// Sends and, on machines with more than two CPUs, sinks.
    sender_cpu: usize,
    relay_cpu: usize,
    lowroad: Lowroad,
    monitor: NoiseMonitor,
    foreign: OccupancyProbe,
    video: media::Source,
}

impl RelayBench {
    /// A bench for any load of the relay.
    pub(crate) fn prepare() -> Result<Self> {
        let [sender_cpu, relay_cpu] = cpus::ends()?;
        Ok(Self {
            sender_cpu,
            relay_cpu,
            lowroad: Lowroad::own(),
            monitor: NoiseMonitor::new()?,
            foreign: OccupancyProbe::attach()?,
            video: media::Source::default(),
        })
    }

    fn layout<'a>(&self, spec: &TrialSpec<'a>) -> Layout<'a> {
        Layout {
            arm: spec.arm,
            lowroad: spec.lowroad,
            program: spec.program,
            load: spec.load,
            sender_cpu: self.sender_cpu,
            relay_cpu: self.relay_cpu,
            environment: spec.environment,
        }
    }

    /// The bare link under this load.
    pub(crate) fn bare<'a>(&'a self, load: &'a Load) -> Layout<'a> {
        Layout {
            arm: FLOOR,
            lowroad: &self.lowroad,
            program: None,
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
            payload_len: load.payload.map_or(PAYLOAD, Size::length),
            rate: None,
            amount: Amount::Time(load.duration.0),
            burst: 1,
            run,
            cpu: Some(self.sender_cpu),
            fifo: false,
        })
    }
}

impl JobBench for RelayBench {
    const NAME: &'static str = "relay";
    const PROGRAMS: ProgramTerms = ProgramTerms {
        placeholders: PLACEHOLDERS,
        ..ProgramTerms::NONE
    };

    type Load = Load;
    type Requirements = RelayRequirements;

    fn arms() -> Vec<&'static str> {
        let datapaths = relay::datapaths();
        let datapaths = datapaths.iter().map(|datapath| datapath.name());
        datapaths.chain(BARE).collect()
    }

    fn runs_lowroad(arm: &str) -> bool {
        let datapaths = relay::datapaths();
        datapaths.iter().any(|datapath| datapath.name() == arm)
    }

    fn check(load: &Load, measure: Measure) -> Result<(), String> {
        load::check(load, measure)
    }

    fn requirements(_plan: &Plan) -> Result<RelayRequirements> {
        RelayRequirements::new()
    }

    fn new(_plan: &Plan) -> Result<Self> {
        Self::prepare()
    }

    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        if environment::starts_each_trial(spec.environment) {
            [self.sender_cpu, self.relay_cpu] = cpus::draw(spec.seed)?;
        }
        self.measure(spec)
    }
}

impl RelayBench {
    /// Runs a trial on the CPUs that the bench has.
    pub(crate) fn measure(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let awake = IdleGuard::start(spec.idle)?;
        let (mut stage, mut outcome) = match spec.measure {
            Measure::Delay => delay::trial(self, spec),
            Measure::Throughput => throughput::trial(self, spec),
            Measure::Cpu => cpu::trial(self, spec),
            Measure::Change => change::trial(self, spec),
            Measure::Video => video::trial(self, spec),
        }?;
        stage.note(&mut outcome)?;
        stage.stop()?;
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after, which must not count as
        // noise of the trial.
        let _pause = stage.bed.pause_guests()?;
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
