//! Experiments whose arms are equal must not find a difference, and those with an injected one must find it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use report::record::{Header, Trial};
use report::{Record, Summary};
use stats::Verdict;
use units::Span;

use super::Check;
use crate::catalog;
use crate::jobs::relay::{DELAYED_FLOOR, INJECTED_DELAY_NS};
use crate::plan::Plan;
use crate::run::{End, Options, Watch, run};

/// The number of 20 intervals of 97.9 % that must cover equality.
const MIN_COVERING: usize = 17;
pub(super) const SEED: u64 = 0xaa;

/// Half the width of an interval of round trips between two namespaces, in per cent: what is further from equality than
/// this can be told from it.
const HALF_WIDTH_PCT: f64 = 1.2;

/// The datapath of a relay.
pub(super) fn relay(experiments: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let mut plan = catalog::find("relay-delay")?.narrowed(true, &["xdp".to_owned()], None)?;
    plan.loads.truncate(1);
    plan.loads[0].set_duration(Span(Duration::from_millis(150)));
    let intervals = intervals(&plan, "delay_p50", experiments, stop)?;
    Ok(intervals.checks("A/A"))
}

/// Round trips between two namespaces.
pub(super) fn round_trips(experiments: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let mut plan =
        catalog::find("netbench-matrix")?.narrowed(false, &["native/direct".to_owned()], None)?;
    plan.loads.truncate(1);
    let intervals = intervals(&plan, "tcp_rr_us_p50", experiments, stop)?;
    let mut checks = intervals.checks("round-trip A/A");
    let width = intervals.half_width_pct();
    checks.push(Check::new(
        "round-trip A/A half-width (median)",
        &format!("at most {HALF_WIDTH_PCT} %"),
        format!("{width:.2} %"),
        width <= HALF_WIDTH_PCT,
    ));
    Ok(checks)
}

/// The bare link, and the same with an injected delay.
pub(super) fn claims(experiments: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let mut plan =
        catalog::find("relay-delay")?.narrowed(false, &["floor".to_owned()], Some(10))?;
    plan.loads.truncate(1);
    plan.loads[0].set_duration(Span(Duration::from_millis(150)));
    plan.arms.push(DELAYED_FLOOR.to_owned());
    let mut found = InjectedDelay::default();
    for number in 0..experiments {
        let summary = summary_of(&plan, SEED + number as u64, stop)?;
        let mut results = summary.results.iter();
        let row = results.find(|row| row.metric == "delay_p50" && row.arm == DELAYED_FLOOR);
        let row = row.context("no row of the injected delay")?;
        let claimed = row.verdict == Verdict::Worse;
        found.claims += usize::from(claimed);
        let medians = row.arm_median.zip(row.baseline_median);
        found
            .estimates_us
            .extend(medians.map(|(arm, baseline)| arm - baseline));
    }
    Ok(found.checks(experiments))
}

/// How often an injected delay was claimed, and how large it was found to be.
#[derive(Debug, Default)]
struct InjectedDelay {
    claims: usize,
    estimates_us: Vec<f64>,
}

impl InjectedDelay {
    fn checks(&self, experiments: usize) -> Vec<Check> {
        let goal_us = f64::from(INJECTED_DELAY_NS) / 1e3;
        let median = stats::median(&self.estimates_us).unwrap_or(f64::NAN);
        vec![
            Check::new(
                &format!("an injected delay of {goal_us} us is claimed"),
                &format!("{experiments} of {experiments}"),
                format!("{} of {experiments}", self.claims),
                self.claims == experiments,
            ),
            Check::new(
                "its estimate (median)",
                "within 10 %",
                format!("{median:.2} us"),
                (median / goal_us - 1.0).abs() <= 0.1,
            ),
        ]
    }
}

/// The results of B'' against B.
#[derive(Debug, Default)]
struct Intervals {
    all: Vec<[f64; 2]>,
    claims: usize,
}

/// The intervals of a plan with one arm, which as the baseline runs three times in a block.
fn intervals(
    plan: &Plan,
    metric: &str,
    experiments: usize,
    stop: &AtomicBool,
) -> Result<Intervals> {
    let mut intervals = Intervals::default();
    for number in 0..experiments {
        let summary = summary_of(plan, SEED + number as u64, stop)?;
        let results = summary.results.iter();
        for row in results.filter(|row| row.metric == metric && row.arm.ends_with("''")) {
            intervals.all.extend(row.ci);
            let claimed = matches!(row.verdict, Verdict::Better | Verdict::Worse);
            intervals.claims += usize::from(claimed);
        }
    }
    Ok(intervals)
}

/// Runs a plan, and summarises what it measured.
pub(super) fn summary_of(plan: &Plan, seed: u64, stop: &AtomicBool) -> Result<Summary> {
    let folder = testbed::folder()?;
    let options = Options {
        quick: true,
        attempts: crate::ATTEMPTS,
        seed,
        resume: false,
        again: None,
        command: "lowroad selftest".to_owned(),
        stop,
    };
    match run(plan, folder.path(), &options, &mut NoProgress)? {
        End::Complete | End::OutOfTime { .. } => {}
        End::Interrupted { .. } => bail!("interrupted"),
        End::Failed { error, .. } => return Err(error),
    }
    let record = Record::read(&folder.path().join("record.jsonl"))?;
    Ok(Summary::from_record(&record))
}

impl Intervals {
    fn checks(&self, what: &str) -> Vec<Check> {
        let judged = self.all.len();
        let covering = |[low, high]: &&[f64; 2]| *low <= 1.0 && 1.0 <= *high;
        let covered = self.all.iter().filter(covering).count();
        let least = (MIN_COVERING * judged).div_ceil(20);
        vec![
            Check::new(
                &format!("{what} intervals that cover equality"),
                &format!("at least {least} of {judged}"),
                format!("{covered} of {judged}"),
                judged > 0 && covered >= least,
            ),
            Check::new(
                &format!("{what} differences claimed"),
                "0",
                format!("{} of {judged}", self.claims),
                judged > 0 && self.claims == 0,
            ),
        ]
    }

    /// The median; infinite of none.
    fn half_width_pct(&self) -> f64 {
        let widths: Vec<f64> = self.all.iter().map(|[low, high]| high - low).collect();
        stats::median(&widths).map_or(f64::INFINITY, |width| width * 50.0)
    }
}

struct NoProgress;

impl Watch for NoProgress {
    fn begin(&mut self, _: &Header, _: usize, _: f64) {}
    fn trial(&mut self, _: &Trial, _: usize) {}
    fn block(&mut self, _: &[Trial], _: usize, _: f64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_delay_must_be_claimed_and_estimated() {
        let found = |claims, estimates: [f64; 3]| {
            let found = InjectedDelay {
                claims,
                estimates_us: estimates.to_vec(),
            };
            found
                .checks(3)
                .iter()
                .map(|check| check.passed)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(3, [48.0, 51.0, 80.0]), [true, true]);
        assert_eq!(found(2, [40.0, 44.0, 50.0]), [false, false]);
    }
}
