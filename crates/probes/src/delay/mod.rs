//! One-way delay (RFC 7679) from a sender's tc egress to the final receivers' tc ingress, with
//! exact counts of what was lost, doubled, reordered and foreign.
//!
//! It decides where the stamps are and how packets are matched; who sends, and what lies between,
//! is the trial's.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use bpf::{Map, PerCpu};
use libbpf_rs::OpenObject;
use netdev::attach::{Attachment, Direction};
use netdev::requirement::{self, Requirement};
use stats::Histogram;
use sys::caps::Capability;
use sys::netns::Namespace;

use crate::Error;

mod cost;
mod endpoints;
mod report;
#[cfg(test)]
mod tests;

pub use cost::{Cost, cost};
pub use report::{Device, Report, SubscriberReport};

bpf::skeleton!(pub(crate) mod skel = "delay");

use skel::types;

impl bpf::Counters for types::device {}
impl bpf::Counters for types::histogram {}
impl bpf::Counters for types::tally {}

/// The requirements of the probes.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement::TypeInformation,
    Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin]),
    Requirement::KernelOption("CONFIG_NET_CLS_ACT"),
];

/// Final receivers; twin of `DELAY_RECEIVERS`.
const RECEIVERS: usize = 4;
/// Flows told apart by SSRC; twin of `DELAY_FLOWS`.
const RTP_FLOWS: usize = 16;
/// Slots a packet may take by payload; twin of `STAMP_WAYS`.
const STAMP_WAYS: u32 = 4;
/// The sender's index among `devices`; twin of `DELAY_SENDER`.
const SENDER: u32 = 4;

/// A device in a namespace.
#[derive(Debug)]
pub struct Point {
    pub namespace: Namespace,
    pub ifindex: u32,
}

/// How an arrival finds its departure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchKey {
    /// Payloads that begin with `packet::payload::Header`: run, flow and sequence.
    Lowroad { run: u32 },
    /// RTP of others: the SSRC of each flow, and sequence numbers extended to 32 bits.
    Rtp { sources: Vec<u32> },
    /// Anything else over UDP: a hash of the payload, numbered at departure. Equal payloads are
    /// counted as collisions. One flow.
    PayloadHash,
}

/// The source of the time of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampFrom {
    /// tc egress of the sender's device.
    Egress,
    /// `sent_ns` of the payload header, for senders that bypass tc (AF_XDP, live frames).
    Payload,
}

/// A destination, and the flow it should get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    pub address: SocketAddr,
    pub flow: u32,
}

/// The configuration of a probe.
#[derive(Debug)]
pub struct DelayConfig {
    /// Needed with [`StampFrom::Egress`], not used with [`StampFrom::Payload`].
    pub sender: Option<Point>,
    /// 1 to 4 devices that subscribers' packets arrive on.
    pub receivers: Vec<Point>,
    pub key: MatchKey,
    pub stamp: StampFrom,
    /// 1 to 256 destinations, each address once.
    pub subscribers: Vec<Subscriber>,
    /// Packets of one flow the trial can send at most: later ones cannot be counted as unique.
    pub capacity: u32,
    /// Stamps kept of each flow: packets that can be under way at once. Rounded up to 2^k.
    pub window: u32,
    /// A histogram for each subscriber besides the one for all.
    pub split_histograms: bool,
    /// The null probe: attached and parsing, but neither stamping nor matching.
    pub null: bool,
}

/// An attached pair of probes. Dropping it detaches them.
#[derive(Debug)]
pub struct DelayProbe {
    subscribers: Vec<Subscriber>,
    capacity: u32,
    receivers: u32,
    split: bool,
    stamp: StampFrom,
    maps: Maps,
    attached: Vec<Attachment>,
}

#[derive(Debug)]
struct Maps {
    tallies: PerCpu<types::tally>,
    arrivals: Map<u32, types::arrival>,
    devices: PerCpu<types::device>,
    sent: PerCpu<u64>,
    bitmap: Map<u32, u64>,
    histograms: PerCpu<types::histogram>,
}

impl DelayProbe {
    /// Loads the programs and attaches them: receivers first, so that no departure is missed.
    ///
    /// # Errors
    /// [`Error::Missing`] without the privileges, [`Error::Config`] where the configuration
    /// contradicts itself, and whatever the kernel refuses.
    pub fn attach(config: &DelayConfig) -> Result<Self, Error> {
        requirement::check(REQUIREMENTS)?;
        let mut storage = MaybeUninit::uninit();
        let skel = load(config, &mut storage)?;
        let arrivals = [
            &skel.progs.match_arrival_0,
            &skel.progs.match_arrival_1,
            &skel.progs.match_arrival_2,
            &skel.progs.match_arrival_3,
        ];
        let mut attached = Vec::new();
        for (point, program) in config.receivers.iter().zip(arrivals) {
            attached.push(attach_at(point, program.as_fd(), Direction::Ingress)?);
        }
        if let (Some(sender), StampFrom::Egress) = (&config.sender, config.stamp) {
            let program = skel.progs.stamp_departure.as_fd();
            attached.push(attach_at(sender, program, Direction::Egress)?);
        }
        Self::reading(config, &skel, attached)
    }

    fn reading(
        config: &DelayConfig,
        skel: &skel::DelaySkel<'_>,
        attached: Vec<Attachment>,
    ) -> Result<Self, Error> {
        Ok(Self {
            subscribers: config.subscribers.clone(),
            capacity: padded_capacity(config),
            receivers: u32::try_from(config.receivers.len()).unwrap_or(u32::MAX),
            split: config.split_histograms,
            stamp: config.stamp,
            maps: Maps::of(skel)?,
            attached,
        })
    }

    /// How the programs are attached: `tcx` or `tc-clsact`.
    pub fn mode(&self) -> &'static str {
        self.attached.first().map_or("none", Attachment::mode)
    }

    /// Packets with the match key that have reached the receivers so far.
    pub fn arrived(&self) -> Result<u64, Error> {
        (0..self.receivers)
            .map(|receiver| Ok(self.maps.devices.sum(receiver)?.matched))
            .sum()
    }

    /// Waits until `expected` packets have arrived, or none has for `quiet` (500 ms drains any
    /// path that is not a queue of seconds). Returns how many have.
    pub fn settle(&self, expected: u64, quiet: Duration) -> Result<u64, Error> {
        const POLL: Duration = Duration::from_millis(10);
        let mut arrived = self.arrived()?;
        let mut since = Instant::now();
        while arrived < expected && since.elapsed() < quiet {
            thread::sleep(POLL);
            let now = self.arrived()?;
            if now != arrived {
                arrived = now;
                since = Instant::now();
            }
        }
        Ok(arrived)
    }

    /// Everything counted so far. `sent` is by flow: what the generator says, needed with
    /// [`StampFrom::Payload`]; `None` takes what tc egress counted.
    pub fn report(&self, sent: Option<&[u64]>) -> Result<Report, Error> {
        let sent = match sent {
            Some(sent) => sent.to_vec(),
            None => self.departed()?,
        };
        let mut delay = Histogram::default();
        let mut subscribers = Vec::with_capacity(self.subscribers.len());
        for (index, subscriber) in (0..).zip(&self.subscribers) {
            let flow_sent = sent.get(subscriber.flow as usize).copied().unwrap_or(0);
            subscribers.push(self.subscriber(index, *subscriber, flow_sent)?);
        }
        let histograms = if self.split {
            self.subscribers.len()
        } else {
            1
        };
        for index in 0..u32::try_from(histograms).unwrap_or(0) {
            delay.merge(&self.histogram(index)?);
        }
        let sender = match self.stamp {
            StampFrom::Egress => Some(self.device(SENDER)?),
            StampFrom::Payload => None,
        };
        Ok(Report {
            sent,
            sender,
            receivers: (0..self.receivers)
                .map(|receiver| self.device(receiver))
                .collect::<Result<_, _>>()?,
            subscribers,
            delay,
        })
    }

    fn subscriber(
        &self,
        index: u32,
        subscriber: Subscriber,
        sent: u64,
    ) -> Result<SubscriberReport, Error> {
        let words = self.capacity / 64;
        let seen = (index * words..(index + 1) * words)
            .take(usize::try_from(sent.div_ceil(64)).unwrap_or(usize::MAX))
            .map(|word| Ok(self.maps.bitmap.get(&word)?.unwrap_or(0)))
            .collect::<Result<Vec<_>, Error>>()?;
        let delay = if self.split {
            Some(self.histogram(index)?)
        } else {
            None
        };
        Ok(SubscriberReport::of(
            subscriber,
            sent,
            &self.maps.tallies.sum(index)?,
            &self.maps.arrivals.get(&index)?.unwrap_or_default(),
            &seen,
            delay,
        ))
    }

    fn device(&self, index: u32) -> Result<Device, Error> {
        Ok(Device::of(&self.maps.devices.sum(index)?))
    }

    fn histogram(&self, index: u32) -> Result<Histogram, Error> {
        let histogram = self.maps.histograms.sum(index)?;
        Histogram::from_counts(&histogram.counts).map_err(|e| Error::Config(e.to_string()))
    }

    fn departed(&self) -> Result<Vec<u64>, Error> {
        (0..flows(&self.subscribers))
            .map(|flow| Ok(self.maps.sent.sum(flow)?))
            .collect()
    }
}

impl Maps {
    fn of(skel: &skel::DelaySkel<'_>) -> Result<Self, Error> {
        let maps = &skel.maps;
        Ok(Self {
            tallies: PerCpu::new(&maps.tallies)?,
            arrivals: Map::new(&maps.arrivals)?,
            devices: PerCpu::new(&maps.devices)?,
            sent: PerCpu::new(&maps.sent)?,
            bitmap: Map::new(&maps.bitmap)?,
            histograms: PerCpu::new(&maps.histograms)?,
        })
    }
}

/// Opens the programs, sets their knobs, sizes their maps and loads them.
fn load<'obj>(
    config: &DelayConfig,
    storage: &'obj mut MaybeUninit<OpenObject>,
) -> Result<skel::DelaySkel<'obj>, Error> {
    check(config)?;
    let (multiplier, slots) = endpoints::place(&config.subscribers)?;
    let builder = skel::DelaySkelBuilder::default();
    let skel = bpf::load(builder, storage, "the delay probe", |open| {
        set_knobs(open, config, multiplier)?;
        set_sizes(open, config).map_err(Error::bpf("sizing the delay probe's maps"))
    })?;
    let table = Map::new(&skel.maps.endpoints)?;
    for ((index, subscriber), slot) in (0..).zip(&config.subscribers).zip(slots) {
        table
            .set(&slot, &endpoints::endpoint(index, *subscriber))
            .map_err(Error::bpf("writing a subscriber's address"))?;
    }
    Ok(skel)
}

fn check(config: &DelayConfig) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Config(format!("delay probe: {why}")));
    if !(1..=RECEIVERS).contains(&config.receivers.len()) {
        return refuse("1 to 4 receivers");
    }
    if !(1..=endpoints::MAX_SUBSCRIBERS).contains(&config.subscribers.len()) {
        return refuse("1 to 256 subscribers");
    }
    if config.capacity == 0 || config.window == 0 {
        return refuse("capacity and window count packets, and cannot be 0");
    }
    if config.stamp == StampFrom::Egress && config.sender.is_none() {
        return refuse("stamps at egress need the sender's device");
    }
    let flows = flows(&config.subscribers) as usize;
    match &config.key {
        MatchKey::Lowroad { .. } => Ok(()),
        _ if config.stamp == StampFrom::Payload => refuse("only lowroad payloads carry a stamp"),
        MatchKey::Rtp { sources } if sources.len() > RTP_FLOWS || flows > sources.len() => {
            refuse("each flow needs its SSRC, 16 at most")
        }
        MatchKey::PayloadHash if flows > 1 => refuse("by payload there is one flow"),
        MatchKey::PayloadHash if config.window < STAMP_WAYS => {
            refuse("by payload the window is 4 or more")
        }
        MatchKey::Rtp { .. } | MatchKey::PayloadHash => Ok(()),
    }
}

fn set_knobs(
    open: &mut skel::OpenDelaySkel<'_>,
    config: &DelayConfig,
    multiplier: u64,
) -> Result<(), Error> {
    let knobs = open
        .maps
        .rodata_data
        .as_deref_mut()
        .ok_or_else(|| Error::Config("the delay probe's object has no knobs".into()))?;
    match &config.key {
        MatchKey::Lowroad { run } => {
            knobs.match_key = 0;
            knobs.run = *run;
        }
        MatchKey::Rtp { sources } => {
            knobs.match_key = 1;
            knobs.sources[..sources.len()].copy_from_slice(sources);
        }
        MatchKey::PayloadHash => knobs.match_key = 2,
    }
    knobs.flow_count = flows(&config.subscribers);
    knobs.window_log2 = config.window.next_power_of_two().ilog2();
    knobs.endpoint_multiplier = multiplier;
    knobs.capacity = padded_capacity(config);
    knobs.split_histograms = u8::from(config.split_histograms);
    knobs.stamp_in_payload = u8::from(config.stamp == StampFrom::Payload);
    knobs.null_probe = u8::from(config.null);
    Ok(())
}

fn set_sizes(open: &mut skel::OpenDelaySkel<'_>, config: &DelayConfig) -> libbpf_rs::Result<()> {
    let subscribers = u32::try_from(config.subscribers.len()).unwrap_or(u32::MAX);
    let flows = flows(&config.subscribers);
    let maps = &mut open.maps;
    maps.stamps
        .set_max_entries(flows.saturating_mul(config.window.next_power_of_two()))?;
    maps.tallies.set_max_entries(subscribers)?;
    maps.arrivals.set_max_entries(subscribers)?;
    maps.sent.set_max_entries(flows)?;
    maps.departures.set_max_entries(flows)?;
    maps.bitmap
        .set_max_entries(subscribers.saturating_mul(padded_capacity(config) / 64))?;
    maps.histograms.set_max_entries(if config.split_histograms {
        subscribers
    } else {
        1
    })
}

fn attach_at(
    point: &Point,
    program: BorrowedFd<'_>,
    direction: Direction,
) -> Result<Attachment, Error> {
    let attach = || netdev::attach::tc(program, point.ifindex, direction, netdev::attach::tc_via());
    Ok(point.namespace.run(attach)??)
}

fn flows(subscribers: &[Subscriber]) -> u32 {
    subscribers.iter().map(|s| s.flow + 1).max().unwrap_or(1)
}

fn padded_capacity(config: &DelayConfig) -> u32 {
    config.capacity.next_multiple_of(64)
}
