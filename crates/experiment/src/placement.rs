//! Environments that a device under test runs in, as a program there sees them: whether this machine has the
//! environment, and whether its kernel has what a datapath needs.

use std::io::Read;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use datapath::Missing;
use serde::Deserialize;
use testbed::{Bed, Kind, Stream, Topology};

use crate::program::{Lowroad, host};

/// An environment as a program sees it that runs there.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) environment: &'static str,
    /// It has a kernel and a clock of its own, and shares no files.
    pub(crate) guest: bool,
    checks: Vec<Check>,
}

/// The output of `lowroad doctor` there.
#[derive(Debug, Deserialize)]
struct Diagnosis {
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    group: String,
    name: String,
    available: bool,
    #[serde(default)]
    what: String,
    #[serde(default)]
    remedy: String,
}

impl Placement {
    /// Brings a host up in the environment, and asks `lowroad doctor` there.
    pub(crate) fn probe(kind: &Kind) -> Result<Self> {
        const HOST: &str = "inside";
        let mut topology = Topology::default();
        topology.host.insert(HOST.to_owned(), host(kind.name));
        let bed = Bed::up(&topology, "survey")?;
        let host = bed.host(HOST)?;
        let mut doctor = host.start(
            Lowroad::own()
                .payload(&["doctor", "--json"])
                .stdout(Stream::Piped),
        )?;
        let mut output = doctor.stdout().context("its output is piped")?;
        let reader = thread::spawn(move || {
            let mut said = String::new();
            output.read_to_string(&mut said).map(|_length| said)
        });
        // `wait` notices a guest that has fallen silent; a read would block for ever.
        let status = doctor.wait()?;
        ensure!(
            status.success(),
            "lowroad doctor in {}: {status}",
            kind.name
        );
        let said = reader.join();
        let said = said.map_err(|_| anyhow!("the reader panicked"))??;
        let Diagnosis { checks } =
            serde_json::from_str(&said).with_context(|| format!("doctor in {}", kind.name))?;
        Ok(Self {
            environment: kind.name,
            guest: kind.guest,
            checks,
        })
    }

    /// Why a job's datapath does not run there.
    pub(crate) fn check(&self, job: &str, datapath: &str) -> Result<(), Missing> {
        let mut checks = self.checks.iter();
        let missing =
            checks.find(|check| check.group == job && check.name == datapath && !check.available);
        missing.map_or(Ok(()), |check| {
            let what = format!("in {}: {}", self.environment, check.what);
            Err(Missing::new(what, &check.remedy))
        })
    }
}

/// The refusal of a job, or a part of one, that runs on no host of a test bed.
pub(crate) fn on_no_host(why: &str) -> Missing {
    Missing::new(why, "leave the environment out")
}
