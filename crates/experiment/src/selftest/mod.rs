//! The instruments against known answers, live on this machine: what `./test` checks with fed-in
//! numbers, checked here with packets.

mod environments;
mod honesty;
mod inject;
mod instruments;
mod neighbour;
mod resolution;

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail, ensure};
use serde::Serialize;

/// One known answer and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub name: String,
    pub goal: String,
    pub measured: String,
    pub passed: bool,
    /// A quantity and the smallest difference of it that this machine resolves, in per cent of the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolves_pct: Option<(String, f64)>,
}

impl Check {
    fn new(name: &str, goal: &str, measured: String, passed: bool) -> Self {
        Self {
            name: name.to_owned(),
            goal: goal.to_owned(),
            measured,
            passed,
            resolves_pct: None,
        }
    }
}

/// The groups of checks, in the order they run.
pub const NAMES: [&str; 11] = [
    "probe",
    "accounting",
    "generator",
    "delay",
    "loss",
    "environments",
    "neighbour",
    "resolution",
    "claims",
    "aa",
    "aa-round-trips",
];

/// Runs one group of checks; `quick` repeats less.
///
/// # Errors
/// Also when `stop` is set before the group is done: it ends at its next step.
pub fn run(name: &str, quick: bool, stop: &AtomicBool) -> Result<Vec<Check>> {
    go_on(stop)?;
    match name {
        "probe" => instruments::probe(),
        "accounting" => instruments::accounting(),
        "generator" => instruments::generator(stop),
        "delay" => inject::delay(if quick { 6 } else { 20 }, stop),
        "loss" => inject::loss(),
        "environments" => environments::check(if quick { 5 } else { 20 }, stop),
        "neighbour" => neighbour::check(if quick { 10 } else { 40 }, stop),
        "resolution" => resolution::check(if quick { 10 } else { 20 }, stop),
        "claims" => honesty::claims(if quick { 4 } else { 20 }, stop),
        "aa" => honesty::relay(if quick { 4 } else { 20 }, stop),
        "aa-round-trips" => honesty::round_trips(if quick { 2 } else { 20 }, stop),
        other => bail!("no check is called {other:?}"),
    }
}

/// Looked at before every step.
fn go_on(stop: &AtomicBool) -> Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_stops_when_it_is_told_to() {
        for name in NAMES {
            let error = run(name, true, &AtomicBool::new(true)).unwrap_err();
            assert_eq!(error.to_string(), "interrupted", "{name}");
        }
    }
}
