//! Whether arms agree as nearly as a question asks, as sentences say it.

use report::record::Question;
use report::{Analysis, Record, page, terminal};
use serde_json::json;

use crate::common;

/// A record whose one question asks for agreement.
fn record(within_pct: f64) -> Record {
    let mut record = common::record(20, 1);
    record.header.questions = vec![Question {
        text: "Are they alike?".to_owned(),
        metrics: vec!["delay_p50".to_owned()],
        within_pct: Some(within_pct),
        ..Question::default()
    }];
    record
}

fn claims(record: &Record) -> Vec<String> {
    let text = terminal::results(&Analysis::new(record));
    let about = text.lines().filter(|line| line.contains(", 99.7% CI "));
    about.map(str::to_owned).collect()
}

#[test]
fn an_interval_that_lies_wholly_within_is_agreement() {
    let record = record(10.0);
    let lines = claims(&record);
    for claim in [
        "mmsg agrees with recv within 10 %: 200B 10kpps N=1 p50, ",
        "xdp differs from recv by more than 10 %: 200B 10kpps N=1 p50, ",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(claim)),
            "{lines:?}"
        );
    }
    let html = page(&Analysis::new(&record));
    assert!(html.contains("mmsg agrees with recv within 10 %"));
}

#[test]
fn one_that_lies_across_leaves_it_open() {
    // The synthetic blocks scatter by 5 %.
    let lines = claims(&record(0.5));
    let open = "whether gso agrees with recv within 0.5 % is open: ";
    assert!(lines.iter().any(|line| line.starts_with(open)), "{lines:?}");
}

#[test]
fn nothing_is_said_of_what_was_emulated_or_not_asked_for() {
    let mut record = record(10.0);
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == "gso") {
        let environment = &mut trial.environment;
        environment.insert("device.emulated".to_owned(), json!(true));
    }
    let lines = claims(&record);
    assert!(
        !lines.is_empty() && !lines.iter().any(|line| line.contains("gso")),
        "{lines:?}"
    );
    record.header.questions[0].within_pct = None;
    assert_eq!(claims(&record), Vec::<String>::new());
}
