//! The seam between a job and its experiments. A job's bench implements [`JobBench`]; plans and runs know it only as
//! a [`Job`], a [`Bench`] and its [`Requirements`].

use std::marker::PhantomData;

use anyhow::{Context, Result};
use control::config::{Document, Error};
use datapath::Missing;

use crate::idle::IdlePolicy;
use crate::load::{self, JobLoad, Load, SpannedLoad};
use crate::outcome::Outcome;
use crate::placement::Placement;
use crate::plan::Plan;

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

    type Load: JobLoad;
    type Requirements: JobRequirements<Self::Load> + 'static;

    /// Every arm there is.
    fn arms() -> Vec<&'static str>;

    /// What may follow an arm's name, each after a plus.
    fn tunings() -> &'static [&'static str] {
        &[]
    }

    /// Whether the load makes sense and what is measured can be measured under it, on any machine.
    ///
    /// # Errors
    /// What is wrong, for the line of the load.
    fn check(load: &Self::Load, measure: Measure<Self>) -> Result<(), String>;

    /// What the plan's arms and loads need of this machine. It changes nothing and needs no rights.
    fn requirements(plan: &Plan) -> Result<Self::Requirements>;

    /// A bench for this plan.
    fn new(plan: &Plan) -> Result<Self>;

    /// Runs one trial in a fresh topology.
    fn trial(&mut self, spec: &JobTrialSpec<'_, Self::Load>) -> Result<Outcome>;
}

/// What trials of a bench measure.
pub(crate) type Measure<B> = <<B as JobBench>::Load as JobLoad>::Measure;

/// What a job's arms and loads need of this machine.
pub(crate) trait JobRequirements<L: JobLoad> {
    /// Why this machine cannot run the arm.
    fn check(&self, arm: &str) -> Result<(), Missing>;

    /// Why this machine cannot offer the load.
    fn check_load(&self, _load: &L, _measure: L::Measure) -> Result<(), Missing> {
        Ok(())
    }

    /// Why the arm cannot run under this load, where it can under others.
    fn applies(&self, arm: &str, load: &L, measure: L::Measure) -> Result<(), Missing>;

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

/// One trial of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobTrialSpec<'a, L: JobLoad> {
    pub(crate) arm: &'a str,
    pub(crate) load: &'a L,
    pub(crate) measure: L::Measure,
    pub(crate) idle: IdlePolicy,
    /// Where the device under test is.
    pub(crate) environment: &'a str,
    pub(crate) seed: u64,
    /// What is known of the machine under this load may stand for the whole block.
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
}

/// The requirements of any job. See [`JobRequirements`].
pub(crate) trait Requirements {
    fn check(&self, arm: &str) -> Result<(), Missing>;
    fn check_load(&self, load: &Load) -> Result<(), Missing>;
    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing>;
    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing>;
    fn applies_in(&self, arm: &str, load: &Load, placement: &Placement) -> Result<(), Missing>;
}

/// A job as plans and runs know it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) agent: bool,
    pub(crate) overhead_s: f64,
    pub(crate) remote_hosts: bool,
    pub(crate) arms: fn() -> Vec<&'static str>,
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
            tunings: B::tunings,
            loads: load::read::<B::Load>,
            check: check::<B>,
            requirements: requirements::<B>,
            bench: bench::<B>,
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
        load: PhantomData,
    }))
}

fn bench<B: JobBench>(plan: &Plan) -> Result<Box<dyn Bench>> {
    Ok(Box::new(AnyBench(B::new(plan)?)))
}

fn other_job(load: &Load) -> String {
    format!("load {:?} is another job's", load.label())
}

struct AnyBench<B>(B);

impl<B: JobBench> Bench for AnyBench<B> {
    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let load = spec.load.of_job::<B::Load>();
        let (load, measure) = load.with_context(|| other_job(spec.load))?;
        self.0.trial(&JobTrialSpec {
            arm: spec.arm,
            load,
            measure,
            idle: spec.idle,
            environment: spec.environment,
            seed: spec.seed,
            block: spec.block,
        })
    }
}

struct AnyRequirements<L, R> {
    of_job: R,
    load: PhantomData<L>,
}

impl<L: JobLoad, R: JobRequirements<L>> Requirements for AnyRequirements<L, R> {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        self.of_job.check(arm)
    }

    fn check_load(&self, load: &Load) -> Result<(), Missing> {
        let (load, measure) = of_job::<L>(load)?;
        self.of_job.check_load(load, measure)
    }

    fn applies(&self, arm: &str, load: &Load) -> Result<(), Missing> {
        let (load, measure) = of_job::<L>(load)?;
        self.of_job.applies(arm, load, measure)
    }

    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        self.of_job.datapath(arm)
    }

    fn applies_in(&self, arm: &str, load: &Load, placement: &Placement) -> Result<(), Missing> {
        let (load, measure) = of_job::<L>(load)?;
        self.of_job.applies_in(arm, load, measure, placement)
    }
}

fn of_job<L: JobLoad>(load: &Load) -> Result<(&L, L::Measure), Missing> {
    let of_job = load.of_job::<L>();
    of_job.ok_or_else(|| Missing::new(other_job(load), "leave the load out"))
}
