//! What of the relay this machine can run.

use anyhow::Result;
use datapath::Missing;

use super::{FLOOR, NULL_PROBE, applies, media, peers};
use crate::jobs::Fit;
use crate::jobs::placed::{Inside, on_no_host};
use crate::plan::{Load, LoadSource, Measure, Plan};

/// This machine, as far as it decides which arms run.
#[derive(Debug)]
pub(crate) struct RelayFit {
    cpus: usize,
    /// What is measured where a load does not say.
    measure: Measure,
}

impl RelayFit {
    pub(crate) fn new(plan: &Plan) -> Result<Self> {
        Ok(Self {
            cpus: crate::cpus::ordinary()?.len(),
            measure: plan.measure,
        })
    }
}

impl Fit for RelayFit {
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

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
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

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        applies::applies(arm, load, self.cpus)
    }

    fn placed<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        match peers::find(arm) {
            Some(_) => Err(on_no_host("a peer is set up on this machine alone")),
            // Without a relay there is nothing to place.
            None => Ok(Some(arm).filter(|arm| ![FLOOR, NULL_PROBE].contains(arm))),
        }
    }

    fn applies_in(&self, arm: &str, load: &Load, inside: &Inside) -> Result<(), Missing> {
        let measure = load.measure.unwrap_or(self.measure);
        applies::applies_in(arm, load, measure, inside)
    }
}
