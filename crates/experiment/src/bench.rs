//! The seam between a job and its experiments. A job's bench implements [`JobBench`]; plans and runs know it only as
//! a [`Job`], a [`Bench`] and its [`Requirements`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use control::config::{Document, Error};
use datapath::Missing;

use crate::arms::{CustomArm, ProgramArm, ProgramRules, ProgramTerms};
use crate::idle::IdlePolicy;
use crate::load::{self, JobLoad, Load, SpannedLoad};
use crate::outcome::Outcome;
use crate::placement::{Placement, on_no_host};
use crate::plan::Plan;
use crate::program::Lowroad;

/// A job's bench: what experiment files may say of the job, what a machine needs for it, and its trials.
pub(crate) trait JobBench: Sized + 'static {
    /// The job's name in experiment files.
    const NAME: &'static str;
    /// Whether `netbench-agent` takes part in its trials, also where nothing is in another environment.
    const AGENT: bool = false;
    /// Whether other machines can be arms.
    const REMOTE_HOSTS: bool = false;
    /// Seconds a trial takes beside its load: setting up and taking down the topology.
    const OVERHEAD_S: f64 = 0.6;

    /// How external programs are arms.
    const PROGRAMS: ProgramTerms = ProgramTerms::NONE;

    type Load: JobLoad;
    type Requirements: JobRequirements<Self::Load> + 'static;

    /// Every arm there is.
    fn arms() -> Vec<&'static str>;

    /// Whether the arm's trials start `lowroad`, so that another build of it can be an arm.
    fn runs_lowroad(_arm: &str) -> bool {
        false
    }

    /// The tunings that may follow an arm's name, each after a plus.
    fn tunings() -> &'static [&'static str] {
        &[]
    }

    /// Whether the load makes sense and what is measured can be measured under it, on any machine.
    ///
    /// # Errors
    /// What is wrong, for the line of the load.
    fn check(load: &Self::Load, measure: Measure<Self>) -> Result<(), String>;

    /// Checks the requirements of the plan's arms and loads. It changes nothing and needs no privileges.
    fn requirements(plan: &Plan) -> Result<Self::Requirements>;

    /// A bench for this plan.
    fn new(plan: &Plan) -> Result<Self>;

    /// Runs one trial in a fresh topology.
    fn trial(&mut self, spec: &JobTrialSpec<'_, Self::Load>) -> Result<Outcome>;

    /// How long the trials so far have spent on what stays for later ones.
    fn set_up_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The measure of a bench's trials.
pub(crate) type Measure<B> = <<B as JobBench>::Load as JobLoad>::Measure;

/// The requirements of a job's arms and loads.
pub(crate) trait JobRequirements<L: JobLoad> {
    /// Why this machine cannot run the arm.
    fn check(&self, arm: &str) -> Result<(), Missing>;

    /// Why this machine cannot offer the load.
    fn check_load(&self, _load: &L, _measure: L::Measure) -> Result<(), Missing> {
        Ok(())
    }

    /// Why the arm cannot run under this load, where it can under others.
    fn applies(&self, arm: &str, load: &L, measure: L::Measure) -> Result<(), Missing>;

    /// Why this machine cannot run the external program.
    fn check_program(&self, program: &ProgramArm) -> Result<(), Missing> {
        program.check()
    }

    /// Why an external program cannot be measured under this load.
    fn program_applies(
        &self,
        _program: &ProgramArm,
        _load: &L,
        _measure: L::Measure,
    ) -> Result<(), Missing> {
        Err(Missing::new(
            "external programs do not have this measure",
            "leave out the arm or the load",
        ))
    }

    /// The arguments of commands that a build of `lowroad` accepts if it can run the arm under the load. They change
    /// nothing.
    ///
    /// # Errors
    /// The part that the build lacks.
    fn build_checks(
        &self,
        _build: &BuildCheck<'_>,
        _load: &L,
        _measure: L::Measure,
    ) -> Result<Vec<Vec<OsString>>> {
        Ok(Vec::new())
    }

    /// The datapath that `lowroad doctor` has to find where the device under test is; none for an arm that needs
    /// nothing there.
    ///
    /// # Errors
    /// Why the arm runs only in the native environment.
    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing>;

    /// Why the arm cannot run under this load with the device under test in that environment.
    fn applies_in(
        &self,
        arm: &str,
        load: &L,
        measure: L::Measure,
        placement: &Placement,
    ) -> Result<(), Missing>;
}

/// A build of `lowroad` that is checked for an arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildCheck<'a> {
    pub(crate) lowroad: &'a Lowroad,
    /// The job's arm that it is to run.
    pub(crate) arm: &'a str,
    /// For files that the checks need.
    pub(crate) folder: &'a Path,
}

/// One trial of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobTrialSpec<'a, L: JobLoad> {
    /// One of the job's arms, or the name of the program.
    pub(crate) arm: &'a str,
    /// The build that runs the job's arm.
    pub(crate) lowroad: &'a Lowroad,
    /// The external program that is the arm.
    pub(crate) program: Option<&'a ProgramArm>,
    pub(crate) load: &'a L,
    pub(crate) measure: L::Measure,
    pub(crate) idle: IdlePolicy,
    /// Where the device under test is.
    pub(crate) environment: &'a str,
    pub(crate) seed: u64,
    /// Measurements of the machine under this load may serve the whole block.
    pub(crate) block: usize,
}

/// One trial, whatever the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialSpec<'a> {
    pub(crate) arm: &'a str,
    pub(crate) load: &'a Load,
    pub(crate) idle: IdlePolicy,
    pub(crate) environment: &'a str,
    pub(crate) seed: u64,
    pub(crate) block: usize,
}

/// The bench of any job.
pub(crate) trait Bench {
    /// As [`JobBench::trial`].
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome>;

    /// As [`JobBench::set_up_time`].
    fn set_up_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The requirements of any job. See [`JobRequirements`].
pub(crate) trait Requirements {
    fn check(&self, arm: &str) -> Result<(), Missing>;
    fn check_load(&self, load: &Load) -> Result<(), Missing>;
    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing>;
    fn datapath<'a>(&'a self, arm: &'a str) -> Result<Option<&'a str>, Missing>;
    fn applies_in(&self, arm: &str, load: &Load, placement: &Placement) -> Result<(), Missing>;

    /// As [`JobRequirements::build_checks`].
    fn build_checks(&self, _build: &BuildCheck<'_>, _load: &Load) -> Result<Vec<Vec<OsString>>> {
        Ok(Vec::new())
    }
}

/// A job as plans and runs know it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) agent: bool,
    pub(crate) overhead_s: f64,
    pub(crate) remote_hosts: bool,
    pub(crate) arms: fn() -> Vec<&'static str>,
    pub(crate) runs_lowroad: fn(&str) -> bool,
    pub(crate) programs: ProgramTerms,
    pub(crate) tunings: fn() -> &'static [&'static str],
    pub(crate) loads: fn(&Document) -> Result<Vec<SpannedLoad>, Error>,
    /// As [`JobBench::check`].
    pub(crate) check: fn(&Load) -> Result<(), String>,
    pub(crate) requirements: fn(&Plan) -> Result<Box<dyn Requirements>>,
    pub(crate) bench: fn(&Plan) -> Result<Box<dyn Bench>>,
}

impl Job {
    pub(crate) const fn of<B: JobBench>() -> Self {
        Self {
            name: B::NAME,
            agent: B::AGENT,
            overhead_s: B::OVERHEAD_S,
            remote_hosts: B::REMOTE_HOSTS,
            arms: B::arms,
            runs_lowroad: B::runs_lowroad,
            programs: B::PROGRAMS,
            tunings: B::tunings,
            loads: load::read::<B::Load>,
            check: check::<B>,
            requirements: requirements::<B>,
            bench: bench::<B>,
        }
    }

    /// The job's rules for external programs; `arms` are its own.
    pub(crate) fn program_rules<'a>(&self, arms: &'a [&'static str]) -> ProgramRules<'a> {
        ProgramRules {
            job: self.name,
            terms: self.programs,
            arms,
        }
    }
}

fn check<B: JobBench>(load: &Load) -> Result<(), String> {
    let (load, measure) = load.of_job::<B::Load>().ok_or_else(|| other_job(load))?;
    B::check(load, measure)
}

fn requirements<B: JobBench>(plan: &Plan) -> Result<Box<dyn Requirements>> {
    Ok(Box::new(AnyRequirements {
        of_job: B::requirements(plan)?,
        custom: plan.custom.clone(),
        load: PhantomData,
    }))
}

fn bench<B: JobBench>(plan: &Plan) -> Result<Box<dyn Bench>> {
    Ok(Box::new(AnyBench {
        of_job: B::new(plan)?,
        own: Lowroad::own(),
        custom: plan.custom.clone(),
    }))
}

fn other_job(load: &Load) -> String {
    format!("load {:?} is another job's", load.label())
}

struct AnyBench<B> {
    of_job: B,
    /// The program that the job's arms run.
    own: Lowroad,
    custom: BTreeMap<String, CustomArm>,
}

impl<B: JobBench> Bench for AnyBench<B> {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let load = spec.load.of_job::<B::Load>();
        let (load, measure) = load.with_context(|| other_job(spec.load))?;
        let (arm, lowroad, program) = match self.custom.get(spec.arm) {
            None => (spec.arm, &self.own, None),
            Some(CustomArm::Build(build)) => (build.arm.as_str(), &build.lowroad, None),
            Some(CustomArm::Program(program)) => (spec.arm, &self.own, Some(program)),
        };
        self.of_job.trial(&JobTrialSpec {
            arm,
            lowroad,
            program,
            load,
            measure,
            idle: spec.idle,
            environment: spec.environment,
            seed: spec.seed,
            block: spec.block,
        })
    }

    fn set_up_time(&self) -> Duration {
        self.of_job.set_up_time()
    }
}

struct AnyRequirements<L, R> {
    of_job: R,
    custom: BTreeMap<String, CustomArm>,
    load: PhantomData<L>,
}

impl<L, R> AnyRequirements<L, R> {
    /// The program that is the arm, or else the job's arm that runs, whatever the build.
    fn resolve<'a>(&'a self, arm: &'a str) -> Result<&'a str, &'a ProgramArm> {
        match self.custom.get(arm) {
            None => Ok(arm),
            Some(CustomArm::Build(build)) => Ok(&build.arm),
            Some(CustomArm::Program(program)) => Err(program),
        }
    }
}

impl<L: JobLoad, R: JobRequirements<L>> Requirements for AnyRequirements<L, R> {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match self.resolve(arm) {
            Ok(arm) => self.of_job.check(arm),
            Err(program) => self.of_job.check_program(program),
        }
    }

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
        let (load, measure) = of_job::<L>(load)?;
        self.of_job.check_load(load, measure)
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        let (load, measure) = of_job::<L>(load)?;
        match self.resolve(arm) {
            Ok(arm) => self.of_job.applies(arm, load, measure),
            Err(program) => self.of_job.program_applies(program, load, measure),
        }
    }

    fn datapath<'a>(&'a self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        match self.resolve(arm) {
            Ok(arm) => self.of_job.datapath(arm),
            Err(_) => Err(on_no_host("an external program runs on this machine alone")),
        }
    }

    fn applies_in(&self, arm: &str, load: &Load, placement: &Placement) -> Result<(), Missing> {
        let (load, measure) = of_job::<L>(load)?;
        match self.resolve(arm) {
            Ok(arm) => self.of_job.applies_in(arm, load, measure, placement),
            Err(_) => self.datapath(arm).map(drop),
        }
    }

    fn build_checks(&self, build: &BuildCheck<'_>, load: &Load) -> Result<Vec<Vec<OsString>>> {
        let (load, measure) = load.of_job::<L>().with_context(|| other_job(load))?;
        self.of_job.build_checks(build, load, measure)
    }
}

fn of_job<L: JobLoad>(load: &Load) -> Result<(&L, L::Measure), Missing> {
    let of_job = load.of_job::<L>();
    of_job.ok_or_else(|| Missing::new(other_job(load), "leave the load out"))
}
