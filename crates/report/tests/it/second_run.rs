//! Two runs of an experiment as one answer.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

use report::record::Headline;
use report::{Analysis, Record, Summary, page, second_run, terminal};
use stats::Verdict;

use crate::common;

/// A run in which this arm takes another share of its delay.
fn run(arm: &str, share: f64) -> Record {
    let mut record = common::record(20, 1);
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == arm) {
        *trial.values.get_mut("delay_p50").unwrap() *= share;
    }
    record
}

/// The verdict on the delay of `tc` in this run and another.
fn verdict(record: &Record, other: &Record) -> (Verdict, Option<String>) {
    let other = Analysis::new(other);
    let joined = second_run::join(record, &other).unwrap();
    let rows = Summary::of(&joined).results;
    let of = |row: &&report::Outcome| {
        row.arm == "tc" && row.metric == "delay_p50" && row.baseline == "recv"
    };
    let row = rows.iter().find(of).unwrap();
    (row.verdict, row.reason.clone())
}

#[test]
fn claim_needs_both_runs() {
    // recv takes 27 us, and tc 3.6 us.
    let (plain, equal, slower) = (run("tc", 1.0), run("tc", 27.1 / 3.6), run("tc", 20.0));
    assert_eq!(verdict(&plain, &run("tc", 1.1)), (Verdict::Better, None));
    assert_eq!(verdict(&slower, &slower), (Verdict::Worse, None));
    for (record, other, reason) in [
        (&plain, &equal, "this run alone shows one"),
        (&equal, &plain, "the other run alone shows one"),
    ] {
        let wanted = (Verdict::NoDifference, Some(reason.to_owned()));
        assert_eq!(verdict(record, other), wanted);
    }
    let (opposite, reason) = verdict(&plain, &slower);
    assert_eq!(opposite, Verdict::Unreliable);
    assert!(reason.unwrap().contains("the opposite"));
    let mut few = plain.clone();
    few.trials.retain(|trial| trial.block < 3);
    let (unknown, reason) = verdict(&plain, &few);
    assert_eq!(unknown, Verdict::Unreliable);
    assert!(reason.unwrap().starts_with("the other run: only 3 blocks"));
}

#[test]
fn both_effects_stand_on_terminal_and_page() {
    let mut record = run("tc", 1.0);
    record.header.questions[0].headline = Some(Headline {
        arm: "tc".to_owned(),
        text: "It takes {ratio}".to_owned(),
    });
    let mut other = run("tc", 1.2);
    other.header.started = "2026-11-21T09:00:00.000000000Z".to_owned();
    let other = Analysis::new(&other);
    let joined = second_run::join(&record, &other).unwrap();
    let (text, html) = (terminal::results(&joined), page(&joined));
    for said in [&text, &html] {
        assert!(
            said.contains(
                "It takes 0.134 (99.7% CI 0.127-0.138, n=20; other run 0.161 (0.153-0.166)"
            ),
            "{said}"
        );
        assert!(
            said.contains(
                "this one of 2026-11-20T14:12:00Z and the other one of 2026-11-21T09:00:00Z"
            ),
            "{said}"
        );
    }
    assert!(html.contains("effect, other run"));
    let summary = Summary::of(&joined).to_json().unwrap();
    assert!(summary.contains("\"other_run\": {") && summary.contains("\"runs\": ["));
}

#[test]
fn run_of_another_kind_is_refused() {
    let record = run("tc", 1.0);
    let mut other = record.clone();
    other.header.arms.pop();
    other.header.quick = true;
    other.header.metrics[0].primary = false;
    other
        .header
        .machine
        .insert("build".to_owned(), "another".into());
    let refused = second_run::join(&record, &Analysis::new(&other)).unwrap_err();
    assert_eq!(
        refused.reasons,
        [
            "arms recv, mmsg, gso, busy, tc, xdp, floor and recv, mmsg, gso, busy, tc, xdp",
            "primary metrics delay_p50, cpu_ns_per_delivery and cpu_ns_per_delivery",
            "--quick differs",
            "builds of lowroad differ",
        ]
    );
}
