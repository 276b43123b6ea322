//! Trials of the features job: its datapaths, and the programs that people make flows with today.

mod file;
mod peers;

use std::path::{Path, PathBuf};

use anyhow::Result;
use datapath::Missing;
use tempfile::TempDir;

use super::noise::Beside;
use super::{Bench, Fit, Outcome, TrialSpec};
use crate::plan::{Load, LoadSource, Measure};

/// Our reader of captures.
const PCAP: &str = "pcap";

/// Every arm there is.
pub(crate) fn arms() -> Vec<&'static str> {
    std::iter::once(PCAP).chain(peers::names()).collect()
}

/// Whether features can be offered the load, and measured so under it.
pub(crate) fn check_stated(load: &Load, measure: Measure) -> Result<(), String> {
    if measure != Measure::File {
        return Err("features are measured by file only".to_owned());
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
pub(crate) struct FeaturesFit;

impl Fit for FeaturesFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match peers::find(arm) {
            Some(peer) => peer.check(),
            None => Ok(()),
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

    fn applies(&self, _arm: &str, _load: &Load) -> Result<(), Missing> {
        Ok(())
    }
}

/// Runs features trials.
#[derive(Debug)]
pub struct FeaturesBench {
    beside: Beside,
    /// For captures and what is made of them.
    folder: TempDir,
}

impl FeaturesBench {
    pub fn new() -> Result<Self> {
        Ok(Self {
            beside: Beside::new()?,
            folder: tempfile::tempdir()?,
        })
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
        let capture = self.capture(spec.load)?;
        self.beside.wait()?;
        let mut outcome = file::trial(spec.arm, &capture, self.folder.path())?;
        self.beside.note(&mut outcome)?;
        Ok(outcome)
    }
}
