//! Where the device under test of an experiment runs, and what stands against that: an environment that
//! this machine has not, a job that runs on no host, a kernel that lacks what a datapath needs.

use std::cell::OnceCell;
use std::io::Read;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use datapath::Missing;
use serde::Deserialize;
use testbed::{Bed, KINDS, Kind, Stream, Topology};

use super::Fit;
use super::program::{host, payload};
use crate::plan::{Load, Plan};

/// Where everything ran before there was a choice.
pub(crate) const NATIVE: &str = "native";

/// The environment of this name, or which there are.
pub(crate) fn environment(name: &str) -> Result<String, String> {
    if Kind::find(name).is_some() {
        return Ok(name.to_owned());
    }
    let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    Err(format!(
        "no environment {name:?}; there are: {}",
        known.join(", ")
    ))
}

impl Plan {
    /// The plan with its device under test in the environment of this name, where one is named.
    pub fn placed(mut self, environment: Option<&str>) -> Result<Self> {
        if let Some(name) = environment {
            self.environment = self::environment(name).map_err(anyhow::Error::msg)?;
        }
        Ok(self)
    }
}

/// An environment, as a program sees it that runs there.
#[derive(Debug)]
pub struct Inside {
    pub(crate) environment: &'static str,
    /// It has a kernel and a clock of its own, and shares no files.
    pub(crate) guest: bool,
    checks: Vec<Check>,
}

/// What `lowroad doctor` says there.
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

impl Inside {
    /// Brings a host up in the environment, and asks `lowroad doctor` there.
    fn look(kind: &Kind) -> Result<Self> {
        const HOST: &str = "inside";
        let mut topology = Topology::default();
        topology.host.insert(HOST.to_owned(), host(kind.name));
        let bed = Bed::up(&topology, "survey")?;
        let host = bed.host(HOST)?;
        let mut doctor = host.start(payload(&["doctor", "--json"]).stdout(Stream::Piped))?;
        let mut output = doctor.stdout().context("its output is piped")?;
        let reader = thread::spawn(move || {
            let mut said = String::new();
            output.read_to_string(&mut said).map(|_length| said)
        });
        // Who waits for it finds out that a guest is silent; who reads would for ever.
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
    fn has(&self, job: &str, datapath: &str) -> Result<(), Missing> {
        let mut checks = self.checks.iter();
        let missing =
            checks.find(|check| check.group == job && check.name == datapath && !check.available);
        missing.map_or(Ok(()), |check| {
            let what = format!("in {}: {}", self.environment, check.what);
            Err(Missing::new(what, &check.remedy))
        })
    }
}

/// What of a plan can run with its device under test in an environment other than native.
pub(super) struct PlacedFit {
    job: String,
    fit: Box<dyn Fit>,
    kind: &'static Kind,
    /// Or why there is no such environment here. Looked at once it decides: a guest takes seconds to boot.
    inside: OnceCell<Result<Inside, Missing>>,
}

impl PlacedFit {
    pub(super) fn new(job: &str, fit: Box<dyn Fit>, environment: &str) -> Result<Self> {
        let kind =
            Kind::find(environment).with_context(|| format!("no environment {environment}"))?;
        Ok(Self {
            job: job.to_owned(),
            fit,
            kind,
            inside: OnceCell::new(),
        })
    }

    fn inside(&self) -> Result<&Inside, Missing> {
        let look = || {
            (self.kind.probe)()?;
            Inside::look(self.kind).map_err(|error| {
                let what = format!("no program runs in {}: {error:#}", self.kind.name);
                Missing::new(what, "leave the environment out")
            })
        };
        self.inside
            .get_or_init(look)
            .as_ref()
            .map_err(Missing::clone)
    }
}

impl Fit for PlacedFit {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match self.placed(arm)? {
            Some(datapath) => self.inside()?.has(&self.job, datapath),
            None => self.inside().and_then(|_| self.fit.check(arm)),
        }
    }

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
        self.fit.check_load(load)
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        self.fit.applies(arm, load)?;
        self.placed(arm)?;
        self.applies_in(arm, load, self.inside()?)
    }

    fn placed<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        self.fit.placed(arm)
    }

    fn applies_in(&self, arm: &str, load: &Load, inside: &Inside) -> Result<(), Missing> {
        self.fit.applies_in(arm, load, inside)
    }
}

/// A job, or a part of one, that runs on no host of a test bed.
pub(super) fn on_no_host(why: &str) -> Missing {
    Missing::new(why, "leave the environment out")
}
