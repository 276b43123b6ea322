//! Trials of the features job: its datapaths, and the programs that people make flows with today.

mod file;
mod live;
mod load;
mod peers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use datapath::Missing;
use probes::occupancy::OccupancyProbe;
use tempfile::TempDir;

use self::load::{Load, LoadSource, Measure, TrialSpec};
use crate::arms::{FOLDER, HERE, Placeholder, ProgramArm, ProgramTerms};
use crate::bench::{BuildCheck, JobBench, JobRequirements};
use crate::idle::IdleGuard;
use crate::noise::NoiseMonitor;
use crate::outcome::Outcome;
use crate::placement::{Placement, on_no_host};
use crate::plan::Plan;
use crate::{cpus, environment};

/// The placeholder of a capture: what refers to it reads files, and everything else sees an interface.
const CAPTURE: &str = "capture";
/// The placeholders in commands of programs that see packets.
const PLACEHOLDERS: &[Placeholder] = &[
    Placeholder::new("interface", "the device whose packets the program sees"),
    Placeholder::new(
        CAPTURE,
        "the capture that it reads to its end, instead of an interface",
    ),
    FOLDER,
    HERE,
];

/// Our reader of captures.
const PCAP: &str = "pcap";

/// The requirements of the arms and loads of features.
#[derive(Debug)]
pub(crate) struct FeaturesRequirements;

impl JobRequirements<Load> for FeaturesRequirements {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match peers::find(arm) {
            Some(peer) => peer.check(),
            None => live::check_arm(arm),
        }
    }

    fn check_load(&self, load: &Load, _measure: Measure) -> Result<(), Missing> {
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

    fn applies(&self, arm: &str, load: &Load, measure: Measure) -> Result<(), Missing> {
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

    fn program_applies(
        &self,
        program: &ProgramArm,
        load: &Load,
        measure: Measure,
    ) -> Result<(), Missing> {
        match (measure == Measure::File, program.uses(CAPTURE)) {
            (true, true) => Ok(()),
            (false, false) => live::program_applies(load, measure),
            (true, false) => Err(Missing::new("it reads no {capture}", "see the live loads")),
            (false, true) => Err(Missing::new(
                "it is measured with files",
                "say measure = \"file\"",
            )),
        }
    }

    /// The program's own command, which then prints its help.
    fn build_checks(
        &self,
        build: &BuildCheck<'_>,
        load: &Load,
        measure: Measure,
    ) -> Result<Vec<Vec<OsString>>> {
        let BuildCheck { arm, folder, .. } = *build;
        let mut arguments = match measure {
            Measure::File => file::arguments(Path::new("capture.pcap"), folder),
            _ => live::arguments(arm, load, measure, folder)?,
        };
        arguments.push("--help".into());
        Ok(vec![arguments])
    }

    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        match live::arms().contains(&arm) {
            true => Ok(live::datapath(arm)),
            false => Err(on_no_host("what reads files runs on no host of a test bed")),
        }
    }

    fn applies_in(
        &self,
        arm: &str,
        load: &Load,
        measure: Measure,
        placement: &Placement,
    ) -> Result<(), Missing> {
        live::applies_in(arm, load, measure, placement.guest)
    }
}

/// Runs features trials.
#[derive(Debug)]
pub(crate) struct FeaturesBench {
    monitor: NoiseMonitor,
    foreign: OccupancyProbe,
    cpus: [usize; 2],
    /// For captures and what is made of them.
    folder: TempDir,
}

impl FeaturesBench {
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

impl JobBench for FeaturesBench {
    const NAME: &'static str = "features";
    const PROGRAMS: ProgramTerms = ProgramTerms {
        placeholders: PLACEHOLDERS,
        ending: &[CAPTURE],
        counts_packets: true,
        ..ProgramTerms::NONE
    };
    // The idle machine is watched before each trial.
    const OVERHEAD_S: f64 = 1.4;

    type Load = Load;
    type Requirements = FeaturesRequirements;

    fn arms() -> Vec<&'static str> {
        let files = std::iter::once(PCAP).chain(peers::names());
        files.chain(live::arms()).collect()
    }

    fn runs_lowroad(arm: &str) -> bool {
        arm == PCAP || live::arms().contains(&arm) && live::datapath(arm).is_some()
    }

    fn check(load: &Load, measure: Measure) -> Result<(), String> {
        load::check(load, measure)
    }

    fn requirements(_plan: &Plan) -> Result<FeaturesRequirements> {
        Ok(FeaturesRequirements)
    }

    fn new(_plan: &Plan) -> Result<Self> {
        Ok(Self {
            monitor: NoiseMonitor::new()?,
            foreign: OccupancyProbe::attach()?,
            cpus: cpus::ends()?,
            folder: tempfile::tempdir()?,
        })
    }

    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        if spec.measure == Measure::File {
            let capture = self.capture(spec.load)?;
            let mut outcome = file::trial(spec, &capture, self.folder.path())?;
            self.monitor.note(&self.foreign, &mut outcome)?;
            return Ok(outcome);
        }
        if environment::starts_each_trial(spec.environment) {
            self.cpus = cpus::draw(spec.seed)?;
        }
        let awake = IdleGuard::start(spec.idle)?;
        let (stage, mut outcome) = live::trial(self, spec)?;
        drop(awake);
        // While the hosts stand: the kernel's threads remove them for long after.
        let _pause = stage.bed().pause_guests()?;
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}
