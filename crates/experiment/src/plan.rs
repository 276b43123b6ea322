//! What an experiment file says: arms, loads, questions and how many blocks. Written before the
//! experiment runs; nothing here is decided from results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use control::config::{Document, Error};
use report::record::Question;
use serde::Deserialize;

use crate::file;
use crate::jobs::netbench::Away;
use crate::jobs::router;
use crate::shipped::SHIPPED;
use crate::units::{Bytes, PacketRate, Span};

/// An experiment; `crate::file` reads and checks the file that states it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub job: String,
    /// One line for `--list`.
    pub about: String,
    /// The arm every other is compared with; it runs three times a block.
    pub baseline: String,
    pub arms: Vec<String>,
    /// Where the device under test is: one of [`testbed::KINDS`].
    pub environment: String,
    pub blocks: usize,
    /// What keeps the CPUs from sleeping deeply.
    pub idle: IdlePolicy,
    /// What a trial measures, where its load does not say otherwise.
    pub measure: Measure,
    /// Metrics that carry the experiment's claims; all others are corrected for their number.
    pub primary: Vec<String>,
    pub loads: Vec<Load>,
    pub questions: Vec<Question>,
    /// Published figures of the work this experiment reproduces.
    pub origin: Vec<String>,
    pub quick: Quick,
    /// Other machines, each of which is an arm of netbench.
    pub hosts: BTreeMap<String, Away>,
}

/// What `--quick` leaves.
#[derive(Clone, Debug)]
pub struct Quick {
    pub blocks: usize,
    pub arms: Vec<String>,
    /// Indices into the loads.
    pub loads: Vec<usize>,
    /// How long each of them lasts at most.
    pub duration: Option<Span>,
}

/// What a trial measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// One-way delay from the sender's egress to the receiver's ingress.
    Delay,
    /// The highest rate that loses next to nothing, by bracketing, and goodput beyond it.
    Throughput,
    /// Whole-machine CPU per delivery, or per packet, at a fixed rate.
    Cpu,
    /// What a capture takes in at a fixed rate, or of all that can be sent.
    Goodput,
    /// How long after a packet the row of its flow is there.
    RowLatency,
    /// What else the receiving CPU can do beside a capture.
    Freed,
    /// Effect of membership changes on a running stream.
    Change,
    /// Decoded frames of a real stream against its source's.
    Video,
    /// A capture read to its end, as fast as it can be.
    File,
    /// Lookups in a table that does not change.
    Lookup,
    /// Changes of a table while another thread looks up.
    Updates,
    /// How long a table takes to build, and how large it is.
    Build,
    /// Packets a second through a router, of all that can be sent.
    Forward,
    /// Packets that `lowroad router process` decides about, on CPUs or a device.
    Process,
    /// Writes to a file, one after the other.
    Writes,
    /// Requests to a program that writes files, one after the other.
    Requests,
    /// How long after a write copies of the file have it.
    Lag,
    /// Round trips or goodput between two hosts.
    Exchange,
}

impl Measure {
    /// As experiment files write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::Goodput => "goodput",
            Self::RowLatency => "row-latency",
            Self::Freed => "freed",
            Self::Change => "change",
            Self::Video => "video",
            Self::File => "file",
            Self::Lookup => "lookup",
            Self::Updates => "updates",
            Self::Build => "build",
            Self::Forward => "forward",
            Self::Process => "process",
            Self::Writes => "writes",
            Self::Requests => "requests",
            Self::Lag => "lag",
            Self::Exchange => "exchange",
        }
    }

    /// How many windows of the load's duration a trial has.
    fn windows(self) -> f64 {
        match self {
            Self::Delay | Self::Change | Self::File | Self::Goodput | Self::Freed => 1.0,
            // And the pass that is checked, or what is read before.
            Self::Lookup | Self::Updates | Self::Build | Self::Process => 2.0,
            // And what they cost the machine; starting who follows, and comparing what it has.
            Self::Writes | Self::Requests => 3.0,
            // And a wait for rows that are collected for a second.
            Self::RowLatency => 2.0,
            // And a warm-up, and starting both ends.
            Self::Exchange => 1.5,
            Self::Cpu | Self::Forward | Self::Lag => 2.0,
            // Its tail, two starts of ffmpeg, silence at the end, and decoding.
            Self::Video => 2.5,
            Self::Throughput => 8.0,
        }
    }
}

/// What keeps the CPUs from sleeping deeply during trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdlePolicy {
    #[default]
    None,
    /// One SCHED_IDLE spinner a CPU.
    Burner,
    /// A request to the kernel that none enters a state it takes time to wake up from.
    CpuDmaLatency,
}

/// One offered load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Load {
    /// What a trial under this load measures, when not what the experiment does.
    pub measure: Option<Measure>,
    /// From where to where delay is measured.
    #[serde(default)]
    pub scope: Scope,
    /// Where the packets come from.
    #[serde(default)]
    pub from: LoadSource,
    pub payload: Option<Bytes>,
    /// Absent for a throughput search and for a media stream, which has its own rate.
    pub rate: Option<PacketRate>,
    #[serde(default)]
    pub subscribers: usize,
    /// Of a live capture and of forwarding: how many flows the packets belong to.
    pub flows: Option<usize>,
    /// How many packets a capture of our own making has.
    pub packets: Option<usize>,
    /// What a router looks up in.
    pub table: Option<router::Table>,
    /// What it looks up.
    pub traffic: Option<router::Traffic>,
    /// Next hops of a table that has none.
    pub next_hops: Option<u16>,
    /// A table of the user's own.
    pub file: Option<PathBuf>,
    pub duration: Span,
    /// What joins the hosts.
    #[serde(default)]
    pub link: Link,
    /// Random delay, from 0 to this and the same in every trial, on the link before the relay: that
    /// link is then an impaired one.
    pub jitter: Option<Span>,
    /// Settings of the stream in the relay's configuration, such as `work` and `fec`; options of
    /// `lowroad features live`; or what forwarding and updates are like.
    #[serde(default)]
    pub options: BTreeMap<String, toml::Value>,
}

/// What joins two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// A veth pair.
    #[default]
    Direct,
    /// A Linux bridge between a veth pair to each.
    Bridge,
    /// The loopback device of the one host there is then.
    Loopback,
}

/// Where a load's packets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadSource {
    /// Our generator.
    #[default]
    Generator,
    /// ffmpeg sending H.264 video as RTP.
    Rtp,
    /// ffmpeg sending H.264 video as MPEG-TS over UDP.
    MpegTs,
    /// The UDP datagrams of a capture, at their own pace, or at the load's rate where it has one.
    Pcap(PathBuf),
}

/// From where to where delay is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// From the sender's egress to the receiver's ingress; nobody receives.
    #[default]
    StampToStamp,
    /// From the intended time of sending to a receiving application, waking up included.
    Application,
}

impl Load {
    /// A paced load of our own, as an experiment file would state it.
    pub(crate) fn paced(payload: &str, rate: &str, subscribers: usize, time: &str) -> Result<Self> {
        Ok(Self {
            measure: None,
            scope: Scope::default(),
            link: Link::default(),
            jitter: None,
            from: LoadSource::Generator,
            flows: None,
            packets: None,
            table: None,
            traffic: None,
            next_hops: None,
            file: None,
            payload: Some(payload.parse()?),
            rate: Some(rate.parse()?),
            subscribers,
            duration: time.parse()?,
            options: BTreeMap::new(),
        })
    }

    /// The load's name in every record: `200B 10kpps N=1`.
    pub fn label(&self) -> String {
        let mut words = Vec::new();
        match &self.from {
            LoadSource::Generator => {}
            LoadSource::Rtp => words.push("rtp-h264".to_owned()),
            LoadSource::MpegTs => words.push("mpeg-ts".to_owned()),
            LoadSource::Pcap(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                words.push(name.to_string_lossy().into_owned());
            }
        }
        words.extend(router::label(self));
        words.extend(self.payload.map(|size| size.to_string()));
        words.extend(self.rate.map(|rate| rate.to_string()));
        words.extend(self.flows.map(|flows| format!("{flows}-flows")));
        words.extend(self.packets.map(|packets| format!("{packets}-packets")));
        if self.subscribers > 0 {
            words.push(format!("N={}", self.subscribers));
        }
        match self.measure {
            Some(Measure::Change) => words.push("churn".to_owned()),
            Some(Measure::Build) => words.push("build".to_owned()),
            Some(Measure::RowLatency) => words.push("rows".to_owned()),
            Some(Measure::Cpu) => words.push("cpu".to_owned()),
            _ => {}
        }
        if self.scope == Scope::Application {
            words.push("application".to_owned());
        }
        match self.link {
            Link::Direct => {}
            Link::Bridge => words.push("bridge".to_owned()),
            Link::Loopback => words.push("loopback".to_owned()),
        }
        words.extend(self.jitter.map(|jitter| format!("jitter={jitter}")));
        for (key, value) in &self.options {
            options(&mut words, key, value);
        }
        words.join(" ")
    }
}

/// `work=50us`, and `fec-group=10` of a table.
fn options(words: &mut Vec<String>, key: &str, value: &toml::Value) {
    match value {
        toml::Value::Table(table) => {
            for (inner, value) in table {
                options(words, &format!("{key}-{inner}"), value);
            }
        }
        toml::Value::String(text) => words.push(format!("{key}={text}")),
        other => words.push(format!("{key}={other}")),
    }
}

/// Seconds a trial takes beside its load.
const OVERHEAD_S: f64 = 0.6;

impl Plan {
    /// Every experiment that ships.
    pub fn shipped() -> Result<Vec<Self>> {
        let parse = |text: &&str| Ok(Self::parse(&Document::new("experiment", *text))?);
        SHIPPED.iter().map(parse).collect()
    }

    /// An experiment by name, or from a TOML file.
    pub fn find(name: &str) -> Result<Self> {
        if Path::new(name).extension().is_some_and(|ext| ext == "toml") {
            return Ok(Self::parse(&Document::read(name)?)?);
        }
        let shipped = Self::shipped()?;
        let names: Vec<_> = shipped.iter().map(|plan| plan.name.clone()).collect();
        shipped
            .into_iter()
            .find(|plan| plan.name == name)
            .with_context(|| {
                format!(
                    "no experiment is called {name:?}; there are: {}, and your own files (NAME.toml)",
                    names.join(", ")
                )
            })
    }

    /// An experiment as a file states it.
    ///
    /// # Errors
    /// With the line of what is not TOML, not known, or makes no sense.
    pub fn parse(document: &Document) -> Result<Self, Error> {
        file::read(document)
    }

    /// The plan as `--quick`, `--arms` and `--blocks` change it.
    pub fn narrowed(mut self, quick: bool, arms: &[String], blocks: Option<usize>) -> Result<Self> {
        if quick {
            self.blocks = self.quick.blocks;
            self.arms.retain(|arm| self.quick.arms.contains(arm));
            let mut index = 0;
            self.loads.retain(|_| {
                index += 1;
                self.quick.loads.contains(&(index - 1))
            });
            if let Some(longest) = self.quick.duration {
                for load in &mut self.loads {
                    load.duration.0 = load.duration.0.min(longest.0);
                }
            }
        }
        if !arms.is_empty() {
            if let Some(arm) = arms.iter().find(|arm| !self.arms.contains(arm)) {
                bail!(
                    "{} has no arm {arm:?}; it has: {}",
                    self.name,
                    self.arms.join(", ")
                );
            }
            self.arms.retain(|arm| arms.contains(arm));
            if !self.arms.contains(&self.baseline) {
                self.baseline = self.arms[0].clone();
            }
        }
        self.blocks = blocks.unwrap_or(self.blocks);
        Ok(self)
    }

    /// About how long a trial takes: its load, and setting up and taking down the topology.
    pub fn trial_seconds(&self) -> f64 {
        let windows = |load: &Load| load.measure.unwrap_or(self.measure).windows();
        let seconds = |load: &Load| load.duration.0.as_secs_f64() * windows(load);
        let sum: f64 = self.loads.iter().map(seconds).sum();
        sum / self.loads.len().max(1) as f64 + OVERHEAD_S
    }

    /// About how long so many trials take.
    pub(crate) fn seconds_of(&self, trials: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate of a small count")]
        let trials = trials as f64;
        trials * self.trial_seconds()
    }

    /// About how long the whole experiment takes.
    pub fn seconds(&self) -> f64 {
        // The baseline runs two more times a block.
        let trials = self.blocks * self.loads.len() * (self.arms.len() + 2);
        trials as f64 * self.trial_seconds()
    }

    /// About how long `--quick` takes.
    pub fn quick_seconds(&self) -> f64 {
        self.clone()
            .narrowed(true, &[], None)
            .map_or(0.0, |plan| plan.seconds())
    }
}

#[cfg(test)]
mod tests;
