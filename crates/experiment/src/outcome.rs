//! The result of a trial, before the run gives it its place in the record.

use std::collections::BTreeMap;

use report::record::{Span, Stacks};
use stats::Histogram;

/// What one trial measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// What disturbed the trial, and what was unusual about its result.
    pub(crate) flags: Vec<String>,
    /// Accounts that do not add up: the trial has no result.
    pub(crate) violations: Vec<String>,
    pub(crate) environment: BTreeMap<String, serde_json::Value>,
    pub(crate) values: BTreeMap<String, f64>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) histograms: BTreeMap<String, Histogram>,
    pub(crate) cpu: BTreeMap<String, f64>,
    pub(crate) stacks: Option<Stacks>,
    pub(crate) spans: Vec<Span>,
    pub(crate) noise: BTreeMap<String, f64>,
}
