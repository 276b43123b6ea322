//! Requirements of a plan whose device under test is in an environment other than the native one.

use std::cell::OnceCell;
use std::ffi::OsString;

use anyhow::{Context, Result};
use datapath::Missing;
use testbed::Kind;

use crate::bench::{BuildCheck, Requirements};
use crate::load::Load;
use crate::placement::Placement;

/// A job's requirements together with those of an environment.
pub(crate) struct EnvironmentRequirements {
    job: &'static str,
    of_job: Box<dyn Requirements>,
    kind: &'static Kind,
    /// The environment, or why this machine lacks it. Probed when it is first needed: a guest takes seconds to boot.
    placement: OnceCell<Result<Placement, Missing>>,
}

impl EnvironmentRequirements {
    pub(crate) fn new(
        job: &'static str,
        of_job: Box<dyn Requirements>,
        environment: &str,
    ) -> Result<Self> {
        let kind =
            Kind::find(environment).with_context(|| format!("no environment {environment}"))?;
        Ok(Self {
            job,
            of_job,
            kind,
            placement: OnceCell::new(),
        })
    }

    fn placement(&self) -> Result<&Placement, Missing> {
        let probe = || {
            (self.kind.probe)()?;
            Placement::probe(self.kind).map_err(|error| {
                let what = format!("{} runs no program: {error:#}", self.kind.name);
                Missing::new(what, "leave the environment out")
            })
        };
        self.placement
            .get_or_init(probe)
            .as_ref()
            .map_err(Missing::clone)
    }
}

impl Requirements for EnvironmentRequirements {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match self.datapath(arm)? {
            Some(datapath) => self.placement()?.check(self.job, datapath),
            None => self.placement().and_then(|_| self.of_job.check(arm)),
        }
    }

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
        self.of_job.check_load(load)
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        self.of_job.applies(arm, load)?;
        self.datapath(arm)?;
        self.applies_in(arm, load, self.placement()?)
    }

    fn datapath<'a>(&'a self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        self.of_job.datapath(arm)
    }

    fn applies_in(&self, arm: &str, load: &Load, placement: &Placement) -> Result<(), Missing> {
        self.of_job.applies_in(arm, load, placement)
    }

    fn build_checks(&self, build: &BuildCheck<'_>, load: &Load) -> Result<Vec<Vec<OsString>>> {
        self.of_job.build_checks(build, load)
    }
}
