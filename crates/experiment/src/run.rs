//! Runs a plan: blocks of trials into a record, until done, interrupted, or the baseline keeps failing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use datapath::Missing;
use report::record::{Build, Header, Method, Program, Skip, Trial};
use testbed::InstancePool;

use crate::BadInput;
use crate::arms::CustomArm;
use crate::bench::{Bench, Requirements, TrialSpec};
use crate::load::{Load, time_word};
use crate::lock::MachineLock;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::presentation::presentation;
use crate::record::{Record, timestamp};
use crate::schedule::Slot;
use crate::survey::{Survey, slots};
use crate::{catalog, machine, metrics};

/// A trial that fails is tried again at once, until it was tried this often. One that is disturbed counts as it is.
pub const ATTEMPTS: u8 = 2;
/// An arm of which this many trials in a row fail runs no further; the baseline ends the experiment.
const FAILURES_IN_A_ROW: usize = 3;
/// A run takes at most this share of the announced time; then it ends with the blocks that it has. A full run announces its
/// time again after the first block.
const TIME_LIMIT: f64 = 1.2;

/// How to run a plan.
#[derive(Debug)]
pub struct Options<'a> {
    pub quick: bool,
    pub seed: u64,
    /// How often a failing trial is tried, [`ATTEMPTS`] by default.
    pub attempts: u8,
    /// Go on with the record that is there; `seed` is then its own.
    pub resume: bool,
    /// Another run, which this one is going to be joined with.
    pub again: Option<&'a Header>,
    /// The command that repeats this run, for the report.
    pub command: String,
    /// Set from outside to stop after the current trial.
    pub stop: &'a AtomicBool,
}

/// Shows the progress of an experiment.
pub trait Watch {
    /// The experiment starts: how many trials there are, and about how many seconds they take.
    fn begin(&mut self, header: &Header, trials: usize, seconds: f64);
    /// A trial is done; the next one follows.
    fn trial(&mut self, trial: &Trial, done: usize);
    /// An arm kept failing and runs no further.
    fn skip(&mut self, _skip: &Skip) {}
    /// The trials of a block are in the record. `complete` blocks are complete under every load, and the rest takes
    /// about `seconds_left`.
    fn block(&mut self, block: &[Trial], complete: usize, seconds_left: f64);
}

/// How an experiment ended. The record holds what was complete.
#[derive(Debug)]
pub enum End {
    Complete,
    /// The time limit was reached with this many blocks complete under every load.
    OutOfTime {
        blocks: usize,
    },
    /// Stopped from outside, with this many blocks complete under every load.
    Interrupted {
        blocks: usize,
    },
    /// The baseline kept failing, or the record cannot be written.
    Failed {
        blocks: usize,
        error: Error,
    },
}

/// Runs `plan` into `folder/record.jsonl`.
///
/// # Errors
/// [`BadInput`] when a record to resume is missing, or is of another plan, build or machine;
/// [`crate::CannotRun`] when the baseline cannot run here.
pub fn run(
    plan: &Plan,
    folder: &Path,
    options: &Options<'_>,
    watch: &mut dyn Watch,
) -> Result<End> {
    let _lock = MachineLock::take()?;
    let (requirements, bench) = (catalog::requirements, catalog::bench);
    run_with(plan, folder, options, watch, requirements, bench)
}

/// Runs `plan` with the requirements and the bench that these make. The caller holds the machine's lock where they
/// measure it.
fn run_with(
    plan: &Plan,
    folder: &Path,
    options: &Options<'_>,
    watch: &mut dyn Watch,
    requirements: impl FnOnce(&Plan) -> Result<Box<dyn Requirements>>,
    bench: impl FnOnce(&Plan) -> Result<Box<dyn Bench>>,
) -> Result<End> {
    let begun = options.resume.then(|| Record::resume(folder)).transpose()?;
    if let Some(record) = &begun {
        same_machine(&record.header)?;
    }
    let requirements = requirements(plan)?;
    let Survey { plan, skipped, .. } = Survey::runnable(plan, requirements.as_ref())?;
    let planned = header(&plan, options, skipped);
    if let Some(other) = options.again {
        report::second_run::check(other, &planned).map_err(|error| BadInput(error.to_string()))?;
    }
    // Slow starters serve more than one trial.
    let pool = InstancePool::new();
    let mut bench = bench(&plan)?;
    let mut record = match begun {
        Some(mut record) => {
            same_plan(&mut record.header, &plan, options)?;
            record
        }
        None => Record::begin(folder, planned)?,
    };
    let mut runner = Runner {
        plan: &plan,
        requirements: requirements.as_ref(),
        bench: bench.as_mut(),
        stop: options.stop,
        pool: &pool,
        attempts: options.attempts,
        seed: record.header.seed,
        started: Instant::now(),
        failures: BTreeMap::new(),
    };
    runner.blocks(&mut record, watch)
}

fn header(plan: &Plan, options: &Options<'_>, skipped: Vec<Skip>) -> Header {
    let mut all: Vec<_> = metrics::all().collect();
    for metric in &mut all {
        metric.primary = plan.primary.contains(&metric.name);
    }
    Header {
        schema: report::journal::SCHEMA,
        experiment: plan.name.clone(),
        job: plan.job.clone(),
        environment: plan.environment.clone(),
        questions: plan.questions.clone(),
        seed: options.seed,
        quick: options.quick,
        blocks: plan.blocks,
        baseline: plan.baseline.clone(),
        arms: plan.arms.clone(),
        loads: plan.loads.iter().map(Load::label).collect(),
        methods: methods(plan),
        idle: Some(plan.idle.name().to_owned()),
        attempts: Some(options.attempts.max(1)),
        metrics: all,
        machine: machine::facts(&plan.job, &plan.environment),
        skipped,
        command: options.command.clone(),
        started: timestamp(),
        origin: plan.origin.clone(),
        hosts: hosts(plan),
        builds: builds(plan),
        programs: programs(plan),
        presentation: presentation(&plan.job, &plan.arms),
    }
}

/// The measure and the duration of each load.
fn methods(plan: &Plan) -> BTreeMap<String, Method> {
    let method = |load: &Load| Method {
        measure: load.measure().to_owned(),
        duration: time_word(load.duration()),
    };
    let loads = plan.loads.iter();
    loads.map(|load| (load.label(), method(load))).collect()
}

/// The other machines that take part, and where their servers are.
fn hosts(plan: &Plan) -> BTreeMap<String, String> {
    let taking = plan
        .hosts
        .iter()
        .filter(|(name, _)| plan.arms.contains(name));
    taking
        .map(|(name, host)| (name.clone(), host.agent.clone()))
        .collect()
}

/// The builds of `lowroad` that are arms.
fn builds(plan: &Plan) -> BTreeMap<String, Build> {
    let builds = plan.builds();
    builds
        .map(|(name, build)| (name.to_owned(), build.clone()))
        .collect()
}

/// The external programs that are arms.
fn programs(plan: &Plan) -> BTreeMap<String, Program> {
    let programs = plan
        .arms
        .iter()
        .filter_map(|arm| match plan.custom.get(arm)? {
            CustomArm::Program(program) => Some((arm.clone(), program.identity())),
            CustomArm::Build(_) => None,
        });
    programs.collect()
}

/// Blocks of another build or machine would not be comparable.
fn same_machine(found: &Header) -> Result<()> {
    let differing = machine::differences(found);
    if differing.is_empty() {
        return Ok(());
    }
    Err(BadInput(format!(
        "the record there cannot be continued: {} differ from when it began ({}); choose another --out, or see it with lowroad report",
        differing.join(", "),
        found.started
    ))
    .into())
}

/// Nor would blocks of another plan. How often a trial is tried may differ: it decides nothing by what was measured.
fn same_plan(found: &mut Header, plan: &Plan, options: &Options<'_>) -> Result<()> {
    let loads: Vec<_> = plan.loads.iter().map(Load::label).collect();
    // One that was given up may be missing by now.
    let arms = |arms: &[String]| {
        let stays = |arm: &&String| found.given_up(arm).is_none();
        arms.iter().filter(stays).cloned().collect::<Vec<_>>()
    };
    let same = [
        ("name", found.experiment == plan.name),
        ("job", found.job == plan.job),
        ("--quick", found.quick == options.quick),
        ("--seed", found.seed == options.seed),
        ("environment", found.environment == plan.environment),
        ("baseline", found.baseline == plan.baseline),
        ("arms", arms(&found.arms) == arms(&plan.arms)),
        ("loads", found.loads == loads),
        ("measure or duration", found.methods == methods(plan)),
        ("idle", found.idle.as_deref() == Some(plan.idle.name())),
        ("hosts", found.hosts == hosts(plan)),
        ("builds", found.builds == builds(plan)),
        ("programs", found.programs == programs(plan)),
    ];
    let differing: Vec<&str> = same
        .into_iter()
        .filter_map(|(what, same)| (!same).then_some(what))
        .collect();
    if !differing.is_empty() {
        return Err(BadInput(format!(
            "the record there is of another plan ({}); continue it with the file and the options that began it ({}), or choose another --out",
            differing.join(", "),
            found.command
        ))
        .into());
    }
    found.blocks = found.blocks.max(plan.blocks);
    Ok(())
}

struct Runner<'a> {
    plan: &'a Plan,
    requirements: &'a dyn Requirements,
    bench: &'a mut dyn Bench,
    stop: &'a AtomicBool,
    pool: &'a InstancePool,
    attempts: u8,
    seed: u64,
    started: Instant,
    failures: BTreeMap<String, usize>,
}

impl Runner<'_> {
    fn blocks(&mut self, record: &mut Record, watch: &mut dyn Watch) -> Result<End> {
        let trials = self.remaining_trials(record);
        let announced = self.plan.seconds_of(trials);
        watch.begin(&record.header, trials, announced);
        let mut limit = Duration::from_secs_f64(announced * TIME_LIMIT);
        let mut first = true;
        let mut done = 0;
        while let Some((block, loads)) = record.next() {
            let next = self.sections(block, &loads).concat().len();
            let (elapsed, set_up) = (self.started.elapsed(), self.bench.set_up_time());
            if exceeds(limit, elapsed, set_up, done, next) {
                let blocks = record.blocks();
                return Ok(End::OutOfTime { blocks });
            }
            match self.block(block, &loads, record, &mut done, watch) {
                Ok(Some(block)) => {
                    if first && !record.header.quick {
                        // It tells how long this machine takes. A quick run keeps to what was announced.
                        let all =
                            self.bench.set_up_time().as_secs_f64() + self.at_pace(done, trials);
                        limit = limit.max(Duration::from_secs_f64(all * TIME_LIMIT));
                    }
                    first = false;
                    let left = self.at_pace(done, trials.saturating_sub(done));
                    watch.block(&block, record.blocks(), left);
                }
                Ok(None) => {
                    let blocks = record.blocks();
                    return Ok(End::Interrupted { blocks });
                }
                Err(error) => {
                    let blocks = record.blocks();
                    return Ok(End::Failed { blocks, error });
                }
            }
        }
        Ok(End::Complete)
    }

    /// How many seconds `trials` take at the pace of the `done` ones, without what is set up once.
    fn at_pace(&self, done: usize, trials: usize) -> f64 {
        let elapsed = self.started.elapsed();
        at_pace(
            elapsed.saturating_sub(self.bench.set_up_time()),
            done,
            trials,
        )
    }

    /// The number of trials that remain of the blocks that were asked for.
    fn remaining_trials(&self, record: &Record) -> usize {
        let slots = slots(self.plan, self.requirements, self.seed, 0).into_iter();
        let stays = |slot: &Slot| {
            let arm = &self.plan.arms[slot.arm];
            record.header.given_up(arm).is_none()
        };
        let blocks = slots.filter(stays).map(|slot| {
            let done = record.of_load(&self.plan.loads[slot.load].label());
            record.header.blocks.saturating_sub(done)
        });
        blocks.sum()
    }

    /// The trials of one block under these loads, with all their attempts, or `None` when it was interrupted.
    fn block(
        &mut self,
        block: usize,
        loads: &BTreeSet<String>,
        record: &mut Record,
        done: &mut usize,
        watch: &mut dyn Watch,
    ) -> Result<Option<Vec<Trial>>> {
        let mut all = Vec::new();
        for section in self.sections(block, loads) {
            let Some(trials) = self.section(block, &section, record, done, watch)? else {
                return Ok(None);
            };
            let load = self.plan.loads[section[0].1.load].label();
            record.section(&load, trials.clone())?;
            all.extend(trials);
        }
        self.pool.end_of_block();
        Ok(Some(all))
    }

    /// The trials of one block under one load.
    fn section(
        &mut self,
        block: usize,
        section: &[(usize, Slot)],
        record: &mut Record,
        done: &mut usize,
        watch: &mut dyn Watch,
    ) -> Result<Option<Vec<Trial>>> {
        let mut trials = Vec::new();
        for (order, slot) in section {
            let arm = &self.plan.arms[slot.arm];
            if record.header.given_up(arm).is_some() {
                *done += 1;
                continue;
            }
            for attempt in 0..self.attempts.max(1) {
                let Some(outcome) = self.outcome(slot, block) else {
                    return Ok(None);
                };
                let last = outcome.is_ok() || attempt + 1 >= self.attempts;
                let (outcome, skip) = match outcome {
                    Err(error) if !last => (failed(arm, &error), None),
                    outcome => self.judge(arm, block, outcome)?,
                };
                if let Some(skip) = skip {
                    watch.skip(&skip);
                    record.give_up(skip)?;
                }
                let trial = self.trial(slot, (block, *order, attempt), outcome);
                *done += usize::from(last);
                watch.trial(&trial, *done);
                trials.push(trial);
                if last {
                    break;
                }
            }
        }
        Ok(Some(trials))
    }

    /// Runs a trial, and what came of it; `None` when it was interrupted.
    fn outcome(&mut self, slot: &Slot, block: usize) -> Option<Result<Outcome>> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let arm = &self.plan.arms[slot.arm];
        let load = &self.plan.loads[slot.load];
        let outcome = self.bench.trial(&TrialSpec {
            arm,
            load,
            idle: self.plan.idle,
            environment: &self.plan.environment,
            seed: slot.seed,
            block,
        });
        match outcome {
            Err(_) if self.stop.load(Ordering::Relaxed) => None,
            outcome => Some(outcome),
        }
    }

    fn trial(
        &self,
        slot: &Slot,
        (block, order, attempt): (usize, usize, u8),
        outcome: Outcome,
    ) -> Trial {
        let mut environment = outcome.environment;
        // An arm may have a policy of its own.
        environment
            .entry("idle".to_owned())
            .or_insert_with(|| self.plan.idle.name().into());
        Trial {
            arm: self.plan.arms[slot.arm].clone(),
            repeat: slot.repeat,
            load: self.plan.loads[slot.load].label(),
            block,
            order,
            attempt,
            seed: slot.seed,
            flags: outcome.flags,
            violations: outcome.violations,
            environment,
            values: outcome.values,
            counts: outcome.counts,
            histograms: outcome.histograms,
            cpu: outcome.cpu,
            stacks: outcome.stacks,
            spans: outcome.spans,
            noise: outcome.noise,
            at_s: self.started.elapsed().as_secs_f64(),
        }
    }

    /// The outcome of a trial's last attempt. An arm that keeps failing is given up for the reason that comes with the
    /// outcome; the baseline ends the experiment.
    fn judge(
        &mut self,
        arm: &str,
        block: usize,
        outcome: Result<Outcome>,
    ) -> Result<(Outcome, Option<Skip>)> {
        let count = self.failures.entry(arm.to_owned()).or_default();
        let error = match outcome {
            Ok(outcome) => {
                *count = 0;
                return Ok((outcome, None));
            }
            Err(error) => error,
        };
        *count += 1;
        let often = *count >= FAILURES_IN_A_ROW;
        if often && *arm == self.plan.baseline {
            return Err(error.context(format!("{arm} failed {count} times in a row")));
        }
        let failed = failed(arm, &error);
        let remedy = remedy(&error);
        let skip = often.then(|| Skip {
            arm: arm.to_owned(),
            load: None,
            reason: format!(
                "it failed {count} times in a row up to block {}: {error:#}",
                block + 1
            ),
            remedy: remedy.unwrap_or_else(|| {
                let (name, baseline) = (&self.plan.name, &self.plan.baseline);
                format!("fix it, then run: lowroad compare {name} --arms {baseline},{arm}")
            }),
        });
        Ok((failed, skip))
    }

    /// The trials of a block under these loads, each with its place in the whole block; those of a load follow
    /// each other.
    fn sections(&self, block: usize, loads: &BTreeSet<String>) -> Vec<Vec<(usize, Slot)>> {
        let slots = slots(self.plan, self.requirements, self.seed, block);
        let slots: Vec<(usize, Slot)> = slots.into_iter().enumerate().collect();
        let sections = slots.chunk_by(|(_, a), (_, b)| a.load == b.load);
        let due = |section: &&[(usize, Slot)]| {
            let load = &self.plan.loads[section[0].1.load];
            loads.contains(&load.label())
        };
        sections.filter(due).map(<[_]>::to_vec).collect()
    }
}

/// Whether the next trials would end after the limit, at the pace of those that are done. `set_up` of the elapsed time was
/// spent on what stays.
fn exceeds(limit: Duration, elapsed: Duration, set_up: Duration, done: usize, next: usize) -> bool {
    let pace = elapsed.saturating_sub(set_up);
    done > 0 && elapsed.as_secs_f64() + at_pace(pace, done, next) > limit.as_secs_f64()
}

/// How many seconds the remaining trials take at the pace of those that are done.
#[expect(clippy::cast_precision_loss, reason = "numbers of trials")]
fn at_pace(elapsed: Duration, done: usize, trials: usize) -> f64 {
    elapsed.as_secs_f64() / done.max(1) as f64 * trials as f64
}

/// The outcome of a trial that ended with an error, which it reports.
fn failed(arm: &str, error: &Error) -> Outcome {
    let help = remedy(error).map_or_else(String::new, |remedy| format!("; {remedy}"));
    tracing::warn!("{arm}: {error:#}{help}");
    Outcome {
        flags: vec![format!("failed: {error:#}")],
        ..Outcome::default()
    }
}

/// The remedy, if something failed because this machine lacks something.
fn remedy(error: &Error) -> Option<String> {
    let missing = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(testbed::Error::Missing(missing)) => Some(missing),
        _ => cause.downcast_ref::<Missing>(),
    });
    missing.map(|missing| missing.remedy.clone())
}

#[cfg(test)]
mod tests;
