//! Trials of the features job: its datapaths, and the programs that people make flows with today.

mod file;
mod live;
mod peers;

use std::path::{Path, PathBuf};

use anyhow::Result;
use datapath::Missing;
use probes::foreign::Foreign;
use tempfile::TempDir;

use super::noise::Beside;
use super::placed::{Inside, on_no_host};
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::idle::Awake;
use crate::plan::{Link, Load, LoadSource, Measure, Plan};

/// Our reader of captures.
const PCAP: &str = "pcap";

/// Every arm there is.
pub(crate) fn arms() -> Vec<&'static str> {
    let files = std::iter::once(PCAP).chain(peers::names());
    files.chain(live::arms()).collect()
}

/// Whether features can be offered the load, and measured so under it.
pub(crate) fn check_stated(load: &Load, measure: Measure) -> Result<(), String> {
    match measure {
        Measure::File => check_capture(load),
        Measure::Cpu | Measure::Goodput | Measure::RowLatency | Measure::Freed => {
            live::check(load, measure)
        }
        _ => Err("features are measured by file, cpu, goodput, row-latency and freed".to_owned()),
    }
}

fn check_capture(load: &Load) -> Result<(), String> {
    if load.flows.is_some() || !load.options.is_empty() || load.link != Link::Direct {
        return Err("a capture has no link, flows and options: leave them out".to_owned());
    }
    if load.subscribers > 0 || load.payload.is_some() || load.rate.is_some() {
        return Err("a capture has no subscribers, payload and rate: leave them out".to_owned());
    }
    match (&load.from, load.packets) {
        (LoadSource::Generator, Some(1..)) | (LoadSource::Pcap(_), None) => Ok(()),
        (LoadSource::Generator, _) => {
            Err("a capture of our own making needs a number of packets".to_owned())
        }
        (LoadSource::Pcap(_), Some(_)) => {
            Err("a capture has its own packets: leave the number out".to_owned())
        }
        _ => Err("features are made from packets = N, or from = { pcap = FILE }".to_owned()),
    }
}

/// What of the features job this machine can run.
#[derive(Debug)]
pub(crate) struct FeaturesFit {
    /// What is measured where a load does not say.
    measure: Measure,
}

impl FeaturesFit {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            measure: plan.measure,
        }
    }
}

impl Fit for FeaturesFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match peers::find(arm) {
            Some(peer) => peer.check(),
            None => live::check_arm(arm),
        }
    }

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
        match &load.from {
            LoadSource::Pcap(path) => std::fs::File::open(path).map(drop).map_err(|error| {
                Missing::new(
                    format!("{}: {error}", path.display()),
                    "captures are looked for from the working directory",
                )
            }),
            _ => Ok(()),
        }
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        let measure = load.measure.unwrap_or(self.measure);
        match (measure == Measure::File, live::arms().contains(&arm)) {
            (true, false) => Ok(()),
            (false, true) => live::applies(arm, load, measure),
            (true, true) => Err(Missing::new("it reads no files", "pcap does")),
            (false, false) => Err(Missing::new(
                "it is measured with files",
                "say measure = \"file\"",
            )),
        }
    }

    fn placed<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        match live::arms().contains(&arm) {
            true => Ok(live::datapath(arm)),
            false => Err(on_no_host("what reads files runs on no host of a test bed")),
        }
    }

    fn applies_in(&self, arm: &str, load: &Load, inside: &Inside) -> Result<(), Missing> {
        let measure = load.measure.unwrap_or(self.measure);
        live::applies_in(arm, load, measure, inside.guest)
    }
}

/// Runs features trials.
#[derive(Debug)]
pub struct FeaturesBench {
    beside: Beside,
    foreign: Foreign,
    cpus: [usize; 2],
    /// For captures and what is made of them.
    folder: TempDir,
}

impl FeaturesBench {
    pub fn new() -> Result<Self> {
        Ok(Self {
            beside: Beside::new()?,
            foreign: Foreign::attach()?,
            cpus: crate::cpus::ends()?,
            folder: tempfile::tempdir()?,
        })
    }

    /// The generator's CPU, and that of the device and the capture.
    fn cpus(&self) -> (usize, usize) {
        self.cpus.into()
    }

    /// The load's capture; a mix is written once, and is the same in every trial.
    fn capture(&self, load: &Load) -> Result<PathBuf> {
        match (&load.from, load.packets) {
            (LoadSource::Pcap(path), _) => Ok(path.clone()),
            (_, packets) => {
                let packets = packets.unwrap_or(1);
                let path = self.folder.path().join(format!("mix-{packets}.pcap"));
                if !path.exists() {
                    write_mix(&path, packets)?;
                }
                Ok(path)
            }
        }
    }
}

/// One seed for all: arms and blocks differ in nothing else.
const MIX_SEED: u64 = 1;

fn write_mix(path: &Path, packets: usize) -> Result<()> {
    let output = std::io::BufWriter::new(std::fs::File::create(path)?);
    loadgen::mix::write(output, packets, MIX_SEED)?;
    Ok(())
}

impl Bench for FeaturesBench {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        if spec.measure == Measure::File {
            let capture = self.capture(spec.load)?;
            self.beside.wait()?;
            let mut outcome = file::trial(spec.arm, &capture, self.folder.path())?;
            self.beside.note(&self.foreign, &mut outcome)?;
            return Ok(outcome);
        }
        self.beside.wait()?;
        let awake = Awake::start(spec.idle)?;
        let (stage, mut outcome) = live::trial(self, spec)?;
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after.
        let _asleep = stage.bed().asleep()?;
        self.beside.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
