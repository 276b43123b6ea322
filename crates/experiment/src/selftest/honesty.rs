//! A/A: experiments whose arms are one and the same must not find a difference.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use report::Record;
use report::record::{Header, Trial};
use stats::Verdict;

use super::Check;
use crate::plan::Plan;
use crate::run::{End, Options, Watch, run};
use crate::units::Span;

/// Of 20 intervals of 97.9 %, this many must cover equality.
const COVER: usize = 17;
const SEED: u64 = 0xaa;

pub(super) fn check(experiments: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let (mut covered, mut claims, mut judged) = (0, 0, 0);
    for number in 0..experiments {
        let folder = testbed::folder()?;
        let options = Options {
            quick: true,
            attempts: crate::ATTEMPTS,
            seed: SEED + number as u64,
            resume: false,
            command: "lowroad selftest --only aa".to_owned(),
            stop,
        };
        let end = run(&plan()?, folder.path(), &options, &mut Silent)?;
        ensure!(end == End::Complete, "interrupted");
        let record = Record::read(&folder.path().join("record.jsonl"))?;
        let summary = report::Summary::from_record(&record);
        let rows = summary
            .results
            .iter()
            .filter(|row| row.metric == "delay_p50" && row.arm.ends_with("''"));
        for row in rows {
            let Some([low, high]) = row.ci else { continue };
            judged += 1;
            covered += usize::from(low <= 1.0 && 1.0 <= high);
            claims += usize::from(matches!(row.verdict, Verdict::Better | Verdict::Worse));
        }
    }
    let least = (COVER * judged).div_ceil(20);
    Ok(vec![
        Check::new(
            "A/A intervals that cover equality",
            &format!("at least {least} of {judged}"),
            format!("{covered} of {judged}"),
            judged > 0 && covered >= least,
        ),
        Check::new(
            "A/A differences claimed",
            "0",
            format!("{claims} of {judged}"),
            judged > 0 && claims == 0,
        ),
    ])
}

/// One arm, which as the baseline runs three times a block: B'' is judged against B.
fn plan() -> Result<Plan> {
    let mut plan = Plan::find("relay-delay")?.narrowed(true, &["xdp".to_owned()], None)?;
    plan.loads.truncate(1);
    plan.loads[0].duration = Span(Duration::from_millis(150));
    Ok(plan)
}

struct Silent;

impl Watch for Silent {
    fn begin(&mut self, _: &Header, _: usize, _: f64) {}
    fn trial(&mut self, _: &Trial, _: usize) {}
    fn block(&mut self, _: &[Trial], _: usize, _: usize) {}
}
