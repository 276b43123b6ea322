//! An arm that ran in an emulated machine is labelled so everywhere, and is not compared.

use report::{Analysis, Summary, figures, page, terminal};
use serde_json::json;
use stats::Verdict;

use crate::common;

/// A record in which an arm ran in an emulated machine in one of its trials.
fn record(arm: &str) -> report::Record {
    let mut record = common::record(20, 1);
    let mut trials = record.trials.iter_mut();
    let trial = trials.find(|trial| trial.arm == arm && trial.block == 7);
    let facts = &mut trial.expect("a trial of the arm").environment;
    facts.insert("host.server.emulated".to_owned(), json!(true));
    record
}

/// Lines that name the arm, or as much of a page as is between two tags.
fn naming<'a>(text: &'a str, arm: &str) -> Vec<&'a str> {
    let named = text.split(['\n', '<', '>']);
    named.filter(|part| part.contains(arm)).collect()
}

#[test]
fn no_sentence_compares_it() {
    let record = record("xdp");
    let text = terminal::results(&Analysis::new(&record));
    let said = naming(&text, "xdp");
    assert!(said.len() > 1);
    for line in said {
        assert!(
            line.contains("EMULATED") || line.contains("did not run"),
            "{line}"
        );
        assert!(!line.contains("recv's") && !line.contains(" CI "), "{line}");
    }
    // The others are compared as if it were not there.
    assert!(text.contains("tc takes 0.134x recv's delay"), "{text}");
}

#[test]
fn its_rows_hold_its_figures_and_no_difference() {
    let record = record("xdp");
    let summary = Summary::from_record(&record);
    let rows = || summary.results.iter().filter(|row| row.arm == "xdp");
    assert!(rows().count() > 0);
    for row in rows() {
        assert_eq!(row.verdict, Verdict::Emulated);
        assert_eq!(row.emulated, ["xdp"]);
        assert!(row.arm_median.is_some());
        assert_eq!((row.ratio, row.ci, row.aa), (None, None, None));
    }
    let others = summary.results.iter().filter(|row| row.arm == "tc");
    assert!(others.clone().all(|row| row.emulated.is_empty()));
    let json = summary.to_json().unwrap();
    assert!(json.contains("\"verdict\": \"emulated\""));
}

/// Has all trials of an arm have run in an emulated machine.
fn throughout(record: &mut report::Record, arm: &str) {
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == arm) {
        let facts = &mut trial.environment;
        facts.insert("host.relay.emulated".to_owned(), json!(true));
    }
}

#[test]
fn a_real_floor_is_not_taken_off_what_was_emulated() {
    let added = |record: &report::Record, arm: &str| {
        let rows = Summary::from_record(record).results.into_iter();
        let mut rows = rows.filter(|row| row.metric == "added_delay_p50");
        let row = rows.find(|row| row.arm == arm && row.baseline == "recv");
        row.map(|row| (row.verdict, row.arm_median.is_some(), row.n))
    };
    let mut record = common::record(20, 1);
    let others = added(&record, "tc");
    assert_eq!(others.map(|(_, figure, _)| figure), Some(true));
    throughout(&mut record, "xdp");
    assert_eq!(added(&record, "xdp"), None);
    assert_eq!(added(&record, "tc"), others);
    let html = page(&Analysis::new(&record));
    assert!(html.contains("xdp EMULATED"), "its delay is shown");
    for arm in ["recv", "floor"] {
        throughout(&mut record, arm);
    }
    assert_eq!(
        added(&record, "xdp"),
        Some((Verdict::Emulated, true, 20)),
        "all three are the emulator's"
    );
    assert_eq!(added(&record, "tc"), None);
}

#[test]
fn emulated_rows_have_no_reason() {
    let mut record = common::record(20, 1);
    let failing = |trial: &report::record::Trial| trial.arm == "xdp" && trial.block < 8;
    for trial in record.trials.iter_mut().filter(|trial| failing(trial)) {
        trial.values.clear();
        trial.flags.push("failed: no packet came".to_owned());
    }
    let reasons = |record: &report::Record| {
        let rows = Summary::from_record(record).results.into_iter();
        let of_arm = rows.filter(|row| row.arm == "xdp" && row.baseline == "recv");
        of_arm.map(|row| row.reason).collect::<Vec<_>>()
    };
    let compared = reasons(&record);
    assert!(!compared.is_empty() && compared.iter().all(Option::is_some));
    throughout(&mut record, "xdp");
    let emulated = reasons(&record);
    assert!(!emulated.is_empty() && emulated.iter().all(Option::is_none));
}

#[test]
fn an_emulated_baseline_has_nothing_compared_with_it() {
    let record = record("recv");
    let analysis = Analysis::new(&record);
    for row in analysis.rows.iter().filter(|row| row.baseline == "recv") {
        let verdict = row.verdict();
        assert!(
            matches!(verdict, Verdict::Emulated | Verdict::Skipped),
            "{}",
            row.arm
        );
    }
    assert!(!terminal::results(&analysis).contains(" than recv"));
}

#[test]
fn tables_and_figures_of_the_page_say_so() {
    let record = record("xdp");
    let html = page(&Analysis::new(&record));
    let rows = html
        .split("<tr>")
        .filter(|row| row.contains(">xdp EMULATED<") || row.contains("</span>xdp"));
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() > 2);
    assert!(rows.iter().all(|row| row.contains("xdp EMULATED")));
    let compared = rows
        .iter()
        .filter(|row| row.contains("EMULATED, not compared"));
    assert!(compared.count() > 0);
    for verb in ["is", "takes", "uses", "has"] {
        assert!(!html.contains(&format!("xdp {verb} ")), "{verb}");
    }
    // Box plot, distribution, series, and the bars of the CPU's states.
    let figures = html
        .split("<svg")
        .skip(1)
        .filter(|figure| figure.contains(">xdp<") || figure.contains("xdp "));
    assert!(figures.clone().count() >= 4);
    assert!(figures.clone().all(|figure| figure.contains("EMULATED")));
}

#[test]
fn the_headline_is_of_what_may_be_compared() {
    // The fastest of all, were it not emulated.
    let record = record("xdp");
    let headline = figures::headline(&Analysis::new(&record)).unwrap();
    let figure = headline.standalone();
    assert!(
        figure.contains("<title>tc takes 0.134x recv's delay"),
        "{figure}"
    );
}

#[test]
fn it_has_an_axis_of_its_own_in_a_box_plot() {
    let mut record = record("xdp");
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == "xdp") {
        *trial.values.get_mut("delay_p50").unwrap() *= 1000.0;
    }
    let axes = |record: &report::Record| {
        let figures = figures::all(&Analysis::new(record));
        let boxes = figures.iter().find(|f| f.id() == "delay_p50-0-boxes");
        let figure = boxes.unwrap().standalone();
        let captions = figure.matches("delay_p50 [us]").count();
        (captions, figure.contains("log scale"))
    };
    let (captions, _) = axes(&record);
    // The title, which is drawn as well, and an axis each.
    assert_eq!(captions, 4);
    for trial in &mut record.trials {
        trial.environment.remove("host.server.emulated");
    }
    assert_eq!(
        axes(&record),
        (3, true),
        "one axis, on which it hides the others"
    );
}
