//! What the relay's arms and loads need of this machine.

use anyhow::Result;
use datapath::Missing;

use super::{FLOOR, NULL_PROBE, applies, media, peers};
use crate::bench::JobRequirements;
use crate::jobs::relay::load::{Load, LoadSource, Measure};
use crate::placement::{Placement, on_no_host};

/// This machine, as far as it decides which arms run.
#[derive(Debug)]
pub(crate) struct RelayRequirements {
    cpus: usize,
}

impl RelayRequirements {
    pub(super) fn new() -> Result<Self> {
        let cpus = crate::cpus::ordinary()?.len();
        Ok(Self { cpus })
    }
}

impl JobRequirements<Load> for RelayRequirements {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        if arm == FLOOR || arm == NULL_PROBE {
            return Ok(());
        }
        if let Some(peer) = peers::find(arm) {
            return peer.check();
        }
        match relay::datapaths().iter().find(|path| path.name() == arm) {
            Some(datapath) => datapath.check(),
            None => Err(Missing::new(
                format!("{arm:?} is neither a datapath nor a peer of relay"),
                "lowroad doctor lists the datapaths",
            )),
        }
    }

    fn check_load(&self, load: &Load, _measure: Measure) -> Result<(), Missing> {
        match &load.from {
            LoadSource::Generator => Ok(()),
            LoadSource::Rtp | LoadSource::MpegTs => media::check(),
            LoadSource::Pcap(path) => match std::fs::File::open(path) {
                Ok(_) => Ok(()),
                Err(error) => Err(Missing::new(
                    format!("{}: {error}", path.display()),
                    "captures are looked for from the working directory",
                )),
            },
        }
    }

    fn applies(&self, arm: &str, load: &Load, _measure: Measure) -> Result<(), Missing> {
        applies::applies(arm, load, self.cpus)
    }

    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        match peers::find(arm) {
            Some(_) => Err(on_no_host("a peer is set up on this machine alone")),
            // Without a relay there is no datapath.
            None => Ok(Some(arm).filter(|arm| ![FLOOR, NULL_PROBE].contains(arm))),
        }
    }

    fn applies_in(
        &self,
        arm: &str,
        load: &Load,
        measure: Measure,
        placement: &Placement,
    ) -> Result<(), Missing> {
        applies::applies_in(arm, load, measure, placement)
    }
}
