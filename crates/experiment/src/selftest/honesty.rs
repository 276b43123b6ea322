//! A/A: experiments whose arms are one and the same must not find a difference.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, bail};
use report::record::{Header, Trial};
use report::{Record, Summary};
use stats::Verdict;

use super::Check;
use crate::catalog;
use crate::plan::Plan;
use crate::run::{End, Options, Watch, run};
use crate::units::Span;

/// Of 20 intervals of 97.9 %, this many must cover equality.
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

/// What B'' against B came to.
#[derive(Debug, Default)]
struct Intervals {
    all: Vec<[f64; 2]>,
    claims: usize,
}

/// Of a plan of one arm, which as the baseline runs three times a block.
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
