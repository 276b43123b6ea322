//! Runs a plan: blocks of trials into a record, until done, interrupted, or an arm keeps failing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use report::record::{Header, Skip, Trial};
use testbed::Kept;

use crate::BadInput;
use crate::jobs::{self, Bench, Fit, Outcome, TrialSpec};
use crate::lock::MachineLock;
use crate::plan::Plan;
use crate::record::{Record, timestamp};
use crate::schedule::Slot;
use crate::survey::{Survey, slots};
use crate::{idle, machine, metrics};

/// Flagged blocks are repeated, up to this share of the planned ones.
const EXTRA_BLOCKS: f64 = 0.2;
/// A trial that is disturbed is tried again at once, until it was tried this often.
pub const ATTEMPTS: u8 = 3;
/// An arm that fails this often in a row ends the experiment.
const FAILURES_IN_A_ROW: usize = 3;

/// How to run a plan.
#[derive(Debug)]
pub struct Options<'a> {
    pub quick: bool,
    pub seed: u64,
    /// How often a trial is tried that others disturb; [`ATTEMPTS`] where nothing is said.
    pub attempts: u8,
    /// Go on with the record that is there.
    pub resume: bool,
    /// The command that repeats this run, for the report.
    pub command: String,
    /// Set from outside to stop after the current trial.
    pub stop: &'a AtomicBool,
}

/// What is shown while an experiment runs.
pub trait Watch {
    /// The experiment starts: how many trials there are, and about how many seconds they take.
    fn begin(&mut self, header: &Header, trials: usize, seconds: f64);
    /// A trial is done; the next one follows.
    fn trial(&mut self, trial: &Trial, done: usize);
    /// A block is complete and in the record.
    fn block(&mut self, block: &[Trial], complete: usize, flagged: usize);
}

/// How an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    /// Stopped from outside; the record holds this many complete blocks.
    Interrupted {
        blocks: usize,
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
    let begun = options.resume.then(|| Record::resume(folder)).transpose()?;
    if let Some(record) = &begun {
        same_machine(&record.header)?;
    }
    let fit = jobs::fit(plan)?;
    let Survey { plan, skipped, .. } = Survey::runnable(plan, fit.as_ref())?;
    // A virtual machine boots once for all trials that it serves.
    let _kept = Kept::new();
    let mut bench = jobs::bench(&plan)?;
    let mut record = match begun {
        Some(mut record) => {
            same_plan(&mut record.header, &plan, options.quick)?;
            record
        }
        None => Record::begin(folder, header(&plan, options, skipped))?,
    };
    let mut runner = Runner {
        plan: &plan,
        fit: fit.as_ref(),
        bench: bench.as_mut(),
        stop: options.stop,
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
        schema: 1,
        experiment: plan.name.clone(),
        job: plan.job.clone(),
        environment: plan.environment.clone(),
        questions: plan.questions.clone(),
        seed: options.seed,
        quick: options.quick,
        blocks: plan.blocks,
        baseline: plan.baseline.clone(),
        arms: plan.arms.clone(),
        loads: plan.loads.iter().map(crate::plan::Load::label).collect(),
        metrics: all,
        machine: machine::facts(),
        skipped,
        command: options.command.clone(),
        started: timestamp(),
        origin: plan.origin.clone(),
    }
}

/// Blocks of another build or machine would not be comparable.
fn same_machine(found: &Header) -> Result<()> {
    let differing = machine::differences(found);
    if differing.is_empty() {
        return Ok(());
    }
    Err(BadInput(format!(
        "the record there cannot be continued: {} differ from when it began ({}); choose another --out, or leave it as it is: lowroad report shows it",
        differing.join(", "),
        found.started
    ))
    .into())
}

/// Nor would blocks of another plan.
fn same_plan(found: &mut Header, plan: &Plan, quick: bool) -> Result<()> {
    let loads: Vec<_> = plan.loads.iter().map(crate::plan::Load::label).collect();
    let same = found.experiment == plan.name
        && found.quick == quick
        && found.environment == plan.environment
        && found.baseline == plan.baseline
        && found.arms == plan.arms
        && found.loads == loads;
    if !same {
        return Err(BadInput(format!(
            "the record there is of another plan; continue it with the options that began it ({}), or choose another --out",
            found.command
        ))
        .into());
    }
    found.blocks = found.blocks.max(plan.blocks);
    Ok(())
}

struct Runner<'a> {
    plan: &'a Plan,
    fit: &'a dyn Fit,
    bench: &'a mut dyn Bench,
    stop: &'a AtomicBool,
    attempts: u8,
    seed: u64,
    started: Instant,
    failures: BTreeMap<String, usize>,
}

impl Runner<'_> {
    fn blocks(&mut self, record: &mut Record, watch: &mut dyn Watch) -> Result<End> {
        let asked = record.header.blocks;
        let left = asked.saturating_sub(record.blocks);
        let trials = self.slots(0).len() * left;
        let seconds = self.plan.seconds_of(trials);
        watch.begin(&record.header, trials, seconds);
        let mut done = 0;
        while record.blocks < planned(asked, record.flagged) {
            let Some(trials) = self.block(record.blocks, &mut done, watch)? else {
                return Ok(End::Interrupted {
                    blocks: record.blocks,
                });
            };
            let finished = trials.clone();
            record.block(trials)?;
            watch.block(&finished, record.blocks, record.flagged);
        }
        Ok(End::Complete)
    }

    /// The trials of one block with all their attempts, or `None` when it was interrupted.
    fn block(
        &mut self,
        block: usize,
        done: &mut usize,
        watch: &mut dyn Watch,
    ) -> Result<Option<Vec<Trial>>> {
        let mut trials = Vec::new();
        for (order, slot) in self.slots(block).into_iter().enumerate() {
            for attempt in 0..self.attempts.max(1) {
                let Some(mut outcome) = self.outcome(&slot)? else {
                    return Ok(None);
                };
                // What is wrong by itself stays on record: only the machine's doing is tried again.
                let again = outcome.flags.is_empty() && !outcome.disturbances.is_empty();
                outcome.flags.append(&mut outcome.disturbances);
                let trial = self.trial(&slot, (block, order, attempt), outcome);
                let last = !again || attempt + 1 >= self.attempts;
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

    /// Runs a trial; `None` when it was interrupted.
    fn outcome(&mut self, slot: &Slot) -> Result<Option<Outcome>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let arm = &self.plan.arms[slot.arm];
        let load = &self.plan.loads[slot.load];
        let outcome = self.bench.trial(&TrialSpec {
            arm,
            load,
            measure: load.measure.unwrap_or(self.plan.measure),
            idle: self.plan.idle,
            environment: &self.plan.environment,
            seed: slot.seed,
        });
        match outcome {
            Err(_) if self.stop.load(Ordering::Relaxed) => Ok(None),
            outcome => self.judge(arm, outcome).map(Some),
        }
    }

    fn trial(
        &self,
        slot: &Slot,
        (block, order, attempt): (usize, usize, u8),
        outcome: Outcome,
    ) -> Trial {
        let mut environment = outcome.environment;
        environment.insert("idle".to_owned(), idle::name(self.plan.idle).into());
        Trial {
            arm: self.plan.arms[slot.arm].clone(),
            repeat: slot.repeat,
            load: self.plan.loads[slot.load].label(),
            block,
            order,
            attempt,
            seed: slot.seed,
            flags: outcome.flags,
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

    /// A failed trial flags its block; an arm that keeps failing ends the experiment.
    fn judge(&mut self, arm: &str, outcome: Result<Outcome>) -> Result<Outcome> {
        let count = self.failures.entry(arm.to_owned()).or_default();
        match outcome {
            Ok(outcome) => {
                *count = 0;
                Ok(outcome)
            }
            Err(error) => {
                *count += 1;
                if *count >= FAILURES_IN_A_ROW {
                    return Err(error.context(format!("{arm} failed {count} times in a row")));
                }
                tracing::warn!("{arm}: {error:#}");
                Ok(Outcome {
                    flags: vec![format!("failed: {error:#}")],
                    ..Outcome::default()
                })
            }
        }
    }

    fn slots(&self, block: usize) -> Vec<Slot> {
        slots(self.plan, self.fit, self.seed, block)
    }
}

/// How many blocks there are to be: those asked for, and some more for flagged ones.
pub(crate) fn planned(asked: usize, flagged: usize) -> usize {
    asked + flagged.min(extra_blocks(asked))
}

fn extra_blocks(planned: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a fifth of a small count"
    )]
    let extra = (planned as f64 * EXTRA_BLOCKS) as usize;
    extra
}

#[cfg(test)]
mod tests;
