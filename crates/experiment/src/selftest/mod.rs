//! The instruments against known answers, live on this machine: what `./test` checks with fed-in
//! numbers, checked here with packets.

mod honesty;
mod inject;
mod instruments;
mod neighbour;

use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use serde::Serialize;

/// One known answer and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub name: String,
    pub goal: String,
    pub measured: String,
    pub passed: bool,
}

impl Check {
    fn new(name: &str, goal: &str, measured: String, passed: bool) -> Self {
        Self {
            name: name.to_owned(),
            goal: goal.to_owned(),
            measured,
            passed,
        }
    }
}

/// The groups of checks, in the order they run.
pub const NAMES: [&str; 7] = [
    "probe",
    "accounting",
    "generator",
    "delay",
    "loss",
    "neighbour",
    "aa",
];

/// Runs one group of checks; `quick` repeats less.
pub fn run(name: &str, quick: bool, stop: &AtomicBool) -> Result<Vec<Check>> {
    match name {
        "probe" => instruments::probe(),
        "accounting" => instruments::accounting(),
        "generator" => instruments::generator(),
        "delay" => inject::delay(if quick { 6 } else { 20 }),
        "loss" => inject::loss(),
        "neighbour" => neighbour::check(if quick { 10 } else { 40 }),
        "aa" => honesty::check(if quick { 4 } else { 20 }, stop),
        other => bail!("no check is called {other:?}"),
    }
}
