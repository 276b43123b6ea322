//! The requirements of the relay's arms and loads.

use std::ffi::OsString;
use std::net::SocketAddr;

use anyhow::Result;
use datapath::Missing;

use super::stage::{RelayConfig, config};
use super::{BARE, applies, media};
use crate::arms::ProgramArm;
use crate::bench::{BuildCheck, JobRequirements};
use crate::jobs::relay::load::{Load, LoadSource, Measure};
use crate::placement::Placement;

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
        if BARE.contains(&arm) {
            return Ok(());
        }
        match relay::datapaths().iter().find(|path| path.name() == arm) {
            Some(datapath) => datapath.check(),
            None => Err(Missing::new(
                format!("{arm:?} is not a datapath of relay"),
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

    fn applies(&self, arm: &str, load: &Load, measure: Measure) -> Result<(), Missing> {
        applies::applies(arm, load, measure, self.cpus)
    }

    fn program_applies(
        &self,
        program: &ProgramArm,
        load: &Load,
        measure: Measure,
    ) -> Result<(), Missing> {
        applies::program_applies(program, load, measure)
    }

    /// A relay reads its whole configuration before it does anything.
    fn build_checks(
        &self,
        build: &BuildCheck<'_>,
        load: &Load,
        _measure: Measure,
    ) -> Result<Vec<Vec<OsString>>> {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let text = config(&RelayConfig {
            folder: build.folder,
            cpus: &[],
            ingest: at(5004),
            datapath: build.arm,
            load,
            subscribers: &[at(7000)],
        });
        let file = build.folder.join("relay.toml");
        std::fs::write(&file, text)?;
        let words = ["relay", "serve", "--check", "--config"];
        let words = words.into_iter().map(OsString::from);
        Ok(vec![words.chain([file.into()]).collect()])
    }

    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        // Without a relay there is no datapath.
        Ok(Some(arm).filter(|arm| !BARE.contains(arm)))
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
