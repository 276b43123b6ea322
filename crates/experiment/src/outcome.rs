//! The result of a trial, before the run gives it its place in the record.

use std::collections::BTreeMap;

use report::record::{Span, Stacks};
use stats::Histogram;

/// The result of one trial.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The disturbances of the trial, and the faults of its result.
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
