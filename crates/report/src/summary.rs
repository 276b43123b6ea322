//! summary.json: the shape scripts rely on.

use std::collections::BTreeMap;

use serde::Serialize;
use stats::{Better, Effect, Estimate, Interval, Verdict};

use crate::analysis::{Analysis, Row, flags_by_arm, reasons};
use crate::journal::{Record, SCHEMA};
use crate::record::{Header, Trial};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub schema: u32,
    pub experiment: String,
    pub machine: BTreeMap<String, serde_json::Value>,
    /// Which attempt of a trial counts: `first`, whether it was disturbed or not.
    pub attempts: &'static str,
    /// The disturbances of the trials.
    pub disturbance: Disturbance,
    /// The run that every claim needs as well, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_run: Option<OtherRun>,
    pub results: Vec<Outcome>,
    pub flags: Vec<Flags>,
}

/// Another run of the experiment, at another time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherRun {
    pub started: String,
    pub seed: u64,
    pub command: String,
}

/// The result of one of two runs for a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOutcome {
    /// The verdict of this run alone.
    pub verdict: Verdict,
    pub ratio: Option<f64>,
    pub ci: Option<[f64; 2]>,
    pub n: usize,
}

/// How many trials were disturbed, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disturbance {
    pub trials: usize,
    /// Trials that have a result all the same.
    pub disturbed: usize,
    /// Trials without a result.
    pub failed: usize,
    /// Why trials were disturbed or have no result, the most frequent first. Reasons that differ in their numbers alone are
    /// one, with the range of each number.
    pub reasons: Vec<Reason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub reason: String,
    pub trials: usize,
}

/// How many of a series' trials were flagged, over all loads. A trial that was tried again counts each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flags {
    /// Second and third runs of the baseline end in `'` and `''`.
    pub arm: String,
    pub attempts: usize,
    pub flagged: usize,
}

/// One metric of one arm against one baseline under one load. Numbers are null where the arm was
/// skipped, and intervals where there are fewer than six blocks.
///
/// The figures are of every trial's first attempt, disturbed or not. Where one of the two ran in an emulated machine the
/// verdict is `emulated`, and nothing compares them. For `effect` `difference`, `ratio`, `ci` and `aa` hold differences
/// in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub primary: bool,
    pub effect: Effect,
    pub load: String,
    pub arm: String,
    pub baseline: String,
    pub arm_median: Option<f64>,
    pub baseline_median: Option<f64>,
    /// The median of the paired ratios, not the ratio of the medians.
    pub ratio: Option<f64>,
    pub ci: Option<[f64; 2]>,
    /// Exact coverage of `ci` before it is widened by the resolution of the values.
    pub confidence: Option<f64>,
    /// The experiment's baseline against its own second run, mirrored about equality.
    pub aa: Option<[f64; 2]>,
    /// How likely a value of the arm is above one of the baseline, equal ones counting half.
    pub a12: Option<f64>,
    /// Blocks that hold both arms.
    pub n: usize,
    /// Blocks of these in which a trial was disturbed that the row rests on.
    pub disturbed: usize,
    /// Trials of the two arms without a result: each counts as the worst value of its arm.
    pub failed: usize,
    /// The same over the undisturbed blocks, where some were disturbed and at least five were not.
    pub clean: Option<CleanEstimate>,
    /// Whether the effect drifts from block to block; such a row claims large effects only.
    pub drifting: bool,
    /// Where no difference is claimed: the smallest that a repetition would claim in 80 % of cases, as a share of the
    /// baseline or, for `effect` `difference`, in `unit`.
    pub detectable: Option<f64>,
    pub verdict: Verdict,
    /// Which of the two ran in an emulated machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emulated: Vec<String>,
    /// This run and the other one, where a claim needs both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunOutcome>,
    pub reason: Option<String>,
    /// The remedy for an arm that was skipped, or was given up.
    pub remedy: Option<String>,
}

/// The second opinion of undisturbed blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleanEstimate {
    pub ratio: Option<f64>,
    pub ci: Option<[f64; 2]>,
    pub n: usize,
}

impl Summary {
    pub fn from_record(record: &Record) -> Self {
        Self::of(&Analysis::new(record))
    }

    pub fn of(analysis: &Analysis<'_>) -> Self {
        let Header {
            experiment,
            machine,
            ..
        } = &analysis.record.header;
        Self {
            schema: SCHEMA,
            experiment: experiment.clone(),
            machine: machine.clone(),
            attempts: "first",
            disturbance: Disturbance::of(analysis.record),
            other_run: analysis.other.map(|other| {
                let header = &other.record.header;
                OtherRun {
                    started: header.started.clone(),
                    seed: header.seed,
                    command: header.command.clone(),
                }
            }),
            results: analysis
                .rows
                .iter()
                .map(|row| Outcome::of(analysis, row))
                .collect(),
            flags: flags_by_arm(analysis.record)
                .into_iter()
                .map(|flags| Flags {
                    arm: flags.label,
                    attempts: flags.trials,
                    flagged: flags.flagged,
                })
                .collect(),
        }
    }

    /// Indented JSON with a final newline: the text of summary.json.
    ///
    /// # Errors
    /// When a value is not a number.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl Outcome {
    fn of(analysis: &Analysis<'_>, row: &Row<'_>) -> Self {
        let comparison = row.comparison.as_ref();
        let all = comparison.and_then(|comparison| comparison.all.as_ref());
        let estimate = row.estimate();
        let clean = comparison.and_then(|comparison| comparison.clean.as_ref());
        Self {
            metric: row.metric.name.clone(),
            unit: row.metric.unit.clone(),
            better: row.metric.better,
            primary: row.metric.primary,
            effect: row.metric.effect,
            load: row.load.to_owned(),
            arm: row.arm.clone(),
            baseline: row.baseline.to_owned(),
            arm_median: all.map(|all| all.arm_median),
            baseline_median: all.map(|all| all.baseline_median),
            ratio: estimate.and_then(|all| finite(all.effect)),
            ci: estimate.and_then(|all| all.interval).and_then(ends),
            confidence: estimate
                .and_then(|all| all.interval)
                .map(|ci| ci.confidence),
            aa: estimate.and_then(|all| all.aa).and_then(ends),
            a12: comparison.and_then(|comparison| estimate.and(comparison.a12)),
            n: all.map_or(0, |all| all.n),
            disturbed: comparison.map_or(0, |comparison| comparison.disturbed),
            failed: comparison.map_or(0, |comparison| comparison.failed.iter().sum()),
            clean: estimate.and(clean).map(CleanEstimate::of),
            drifting: comparison.is_some_and(|comparison| comparison.drifting),
            detectable: estimate
                .filter(|_| row.verdict() == Verdict::NoDifference)
                .and_then(|all| all.smallest_detectable(row.metric.effect)),
            verdict: row.verdict(),
            emulated: [row.arm.as_str(), row.baseline]
                .into_iter()
                .filter(|arm| analysis.is_emulated(arm))
                .map(str::to_owned)
                .collect(),
            runs: runs(row),
            reason: reason(row),
            remedy: row.skip.or(row.given_up).map(|skip| skip.remedy.clone()),
        }
    }
}

/// The results of two runs for a row; empty if there is only one run.
fn runs(row: &Row<'_>) -> Vec<RunOutcome> {
    let of = |verdict, estimate: Option<&Estimate>| RunOutcome {
        verdict,
        ratio: estimate.and_then(|all| finite(all.effect)),
        ci: estimate.and_then(|all| all.interval).and_then(ends),
        n: estimate.map_or(0, |all| all.n),
    };
    let Some(other) = &row.other else {
        return Vec::new();
    };
    vec![
        of(other.own_verdict, row.estimate()),
        of(other.verdict, other.estimate.as_ref()),
    ]
}

impl CleanEstimate {
    fn of(clean: &Estimate) -> Self {
        Self {
            ratio: finite(clean.effect),
            ci: clean.interval.and_then(ends),
            n: clean.n,
        }
    }
}

impl Disturbance {
    pub fn of(record: &Record) -> Self {
        let reasons: Vec<Reason> = reasons(record.trials.iter())
            .into_iter()
            .map(|(reason, trials)| Reason { reason, trials })
            .collect();
        let count = |of: fn(&Trial) -> bool| record.trials.iter().filter(|trial| of(trial)).count();
        Self {
            trials: record.trials.len(),
            disturbed: count(Trial::is_disturbed),
            failed: count(Trial::has_failed),
            reasons,
        }
    }
}

/// Neither has a number: a ratio to 0, and an end at which a trial failed.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn ends(of: Interval) -> Option<[f64; 2]> {
    Some([finite(of.lower)?, finite(of.upper)?])
}

fn reason(row: &Row<'_>) -> Option<String> {
    if let Some(skip) = row.skip {
        return Some(skip.reason.clone());
    }
    // Where nothing is compared, nothing is said of a comparison.
    let compared = row.comparison.as_ref().filter(|_| !row.emulated);
    let doubt = compared.and_then(|comparison| comparison.reason.as_deref());
    let given_up = row.given_up.map(|skip| skip.reason.as_str());
    let reasons: Vec<&str> = doubt.into_iter().chain(given_up).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
