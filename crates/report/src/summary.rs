//! summary.json: the shape scripts rely on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stats::{Better, Effect, Interval, Verdict};

use crate::analysis::{Analysis, Row, flags_by_arm};
use crate::journal::{Record, SCHEMA};
use crate::record::Header;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub schema: u32,
    pub experiment: String,
    pub machine: BTreeMap<String, serde_json::Value>,
    pub results: Vec<Outcome>,
    #[serde(default)]
    pub flags: Vec<Flags>,
}

/// How many of a series' trials were flagged, over all loads. A trial that was tried again counts each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// Second and third runs of the baseline end in `'` and `''`.
    pub arm: String,
    pub attempts: usize,
    pub flagged: usize,
}

/// One metric of one arm against one baseline under one load. Numbers are null where the arm was
/// skipped, and intervals where there are fewer than six blocks.
///
/// The figures are of the blocks in which no trial they rest on was flagged; where fewer than six were clean the verdict
/// is `unreliable`. Where one of the two ran in an emulated machine it is `emulated`, and nothing compares them. For `effect` `difference`, `ratio`, `ci` and `aa` hold differences in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Exact coverage of `ci`.
    pub confidence: Option<f64>,
    /// The experiment's baseline against its own second run, mirrored about equality.
    pub aa: Option<[f64; 2]>,
    /// How likely a value of the arm is above one of the baseline, equal ones counting half.
    #[serde(default)]
    pub a12: Option<f64>,
    /// Clean blocks that hold both arms.
    pub n: usize,
    /// Flagged blocks that hold both arms.
    pub flagged: usize,
    pub verdict: Verdict,
    /// Which of the two ran in an emulated machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emulated: Vec<String>,
    pub reason: Option<String>,
    /// What would have an arm run that was skipped, or was given up.
    #[serde(default)]
    pub remedy: Option<String>,
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
        let clean = comparison.and_then(|comparison| comparison.clean.as_ref());
        // Neither has a number: no value to divide by, and an end that lies below all that was seen.
        let finite = |value: f64| value.is_finite().then_some(value);
        let ends = |of: Interval| Some([finite(of.lower)?, finite(of.upper)?]);
        Self {
            metric: row.metric.name.clone(),
            unit: row.metric.unit.clone(),
            better: row.metric.better,
            primary: row.metric.primary,
            effect: row.metric.effect,
            load: row.load.to_owned(),
            arm: row.arm.clone(),
            baseline: row.baseline.to_owned(),
            arm_median: clean.map(|clean| clean.arm_median),
            baseline_median: clean.map(|clean| clean.baseline_median),
            ratio: row.clean().and_then(|clean| finite(clean.effect)),
            ci: row.clean().and_then(|clean| clean.interval).and_then(ends),
            confidence: row
                .clean()
                .and_then(|clean| clean.interval)
                .map(|ci| ci.confidence),
            aa: row.clean().and_then(|clean| clean.aa).and_then(ends),
            a12: comparison.and_then(|comparison| row.clean().and(comparison.a12)),
            n: clean.map_or(0, |clean| clean.n),
            flagged: comparison.map_or(0, |comparison| comparison.flagged),
            verdict: row.verdict(),
            emulated: [row.arm.as_str(), row.baseline]
                .into_iter()
                .filter(|arm| analysis.is_emulated(arm))
                .map(str::to_owned)
                .collect(),
            reason: reason(row),
            remedy: row.skip.or(row.given_up).map(|skip| skip.remedy.clone()),
        }
    }
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
