//! `lowroad report` on records of known content: one run, two runs, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{lowroad, path, stderr, stdout, succeeded};
use report::Writer;
use report::presentation::Presentation;
use report::record::{Better, Effect, Header, Metric, Question, Trial};

const LOAD: &str = "200B 1kpps N=1";
const BLOCKS: usize = 8;

/// A run whose arm `xdp` takes `us`, beside a baseline of 20 us.
fn run(folder: &Path, name: &str, us: f64, change: impl FnOnce(&mut Header)) -> PathBuf {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    let mut header = header();
    change(&mut header);
    let mut writer = Writer::create(&folder.join("record.jsonl"), &header).unwrap();
    for block in 0..BLOCKS {
        let slower = 1.0 + block as f64 / 100.0;
        for (order, (arm, repeat, delay)) in [
            ("recv", 0, 20.0),
            ("recv", 1, 20.0),
            ("recv", 2, 20.0),
            ("xdp", 0, us),
        ]
        .into_iter()
        .enumerate()
        {
            let mut trial = trial(arm, repeat, delay * slower);
            (trial.block, trial.order) = (block, order);
            writer.trial(trial).unwrap();
        }
    }
    folder
}

fn header() -> Header {
    Header {
        schema: report::journal::SCHEMA,
        experiment: "relay-delay".to_owned(),
        job: "relay".to_owned(),
        environment: "native".to_owned(),
        questions: vec![Question {
            text: "Is it faster?".to_owned(),
            metrics: vec!["delay_p50".to_owned()],
            ..Question::default()
        }],
        seed: 1,
        quick: false,
        blocks: BLOCKS,
        baseline: "recv".to_owned(),
        arms: vec!["recv".to_owned(), "xdp".to_owned()],
        loads: vec![LOAD.to_owned()],
        methods: BTreeMap::new(),
        idle: None,
        attempts: None,
        metrics: vec![Metric {
            name: "delay_p50".to_owned(),
            unit: "us".to_owned(),
            better: Better::Lower,
            primary: true,
            effect: Effect::Ratio,
            resolution: 0.0,
        }],
        machine: BTreeMap::from([("kernel".to_owned(), "6.1.0".into())]),
        skipped: Vec::new(),
        command: "lowroad compare relay-delay --seed 1".to_owned(),
        started: "2026-11-20T14:12:00.000000000Z".to_owned(),
        origin: Vec::new(),
        hosts: BTreeMap::new(),
        builds: BTreeMap::new(),
        programs: BTreeMap::new(),
        presentation: Presentation::default(),
    }
}

fn trial(arm: &str, repeat: u8, delay_us: f64) -> Trial {
    Trial {
        arm: arm.to_owned(),
        repeat,
        attempt: 0,
        load: LOAD.to_owned(),
        block: 0,
        order: 0,
        seed: 1,
        flags: Vec::new(),
        violations: Vec::new(),
        environment: BTreeMap::new(),
        values: BTreeMap::from([("delay_p50".to_owned(), delay_us)]),
        counts: BTreeMap::from([("sent".to_owned(), 100), ("unique".to_owned(), 100)]),
        histograms: BTreeMap::new(),
        cpu: BTreeMap::new(),
        stacks: None,
        spans: Vec::new(),
        noise: BTreeMap::new(),
        at_s: 0.0,
    }
}

fn report(words: &[&str]) -> Output {
    lowroad(&["report"]).args(words).output().unwrap()
}

#[test]
fn one_run_is_reported_again_with_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "run", 5.0, |_| {});
    let output = report(&[path(&run), "--png"]);
    succeeded(&output);
    let said = stdout(&output);
    assert!(said.contains("xdp takes 0.250x recv's delay"), "{said}");
    assert!(run.join("summary.json").is_file());
    // The record's header has no colours, as in records from before it had any.
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    for colour in ["arm-orange", "arm-blue"] {
        assert!(
            page.contains(&format!("class=\"key {colour}\"")),
            "{colour}"
        );
    }
    for name in [
        "headline.png",
        "delay_p50-0-boxes.png",
        "delay_p50-0-series.png",
    ] {
        let picture = fs::read(run.join(name)).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{name}");
    }
}

#[test]
fn one_run_is_exported_as_parquet_and_pprof() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "run", 5.0, |_| {});
    let file = folder.path().join("run.parquet");
    succeeded(&report(&[path(&run), "--parquet", path(&file)]));
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));

    let refused = report(&[path(&run), "--pprof"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("no trial of this run has stack samples"));
    let record = run.join("record.jsonl");
    let text = fs::read_to_string(&record).unwrap();
    let sampled = r#""stacks":{"obtained":3,"expected":4,"folded":{"lowroad;relay_loop":3}}"#;
    fs::write(&record, text.replace("\"stacks\":null", sampled)).unwrap();
    succeeded(&report(&[path(&run), "--pprof"]));
    for arm in ["recv", "xdp"] {
        let profile = fs::read(run.join(format!("{arm}-0.pb"))).unwrap();
        let name = b"relay_loop";
        assert!(profile.windows(name.len()).any(|at| at == name), "{arm}");
    }
}

#[test]
fn paired_runs_claim_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let before = run(folder.path(), "before", 5.0, |_| {});
    let after = run(folder.path(), "after", 10.0, |_| {});
    let output = report(&[path(&before), path(&after)]);
    succeeded(&output);
    let said = stdout(&output);
    let row = said
        .lines()
        .find(|line| line.trim_start().starts_with("xdp"));
    let words: Vec<_> = row.unwrap().split_whitespace().collect();
    assert_eq!(
        words[..6],
        ["xdp", "5.18", "us", "10.4", "us", "2.00"],
        "{said}"
    );
    assert!(said.contains("nothing is claimed"), "{said}");
    assert!(!before.join("report.html").exists(), "it only reads");

    let failed = folder.path().join("failed");
    fs::create_dir(&failed).unwrap();
    let text = fs::read_to_string(after.join("record.jsonl")).unwrap();
    let text = text.replace("\"flags\":[]", "\"flags\":[],\"violations\":[\"lost\"]");
    fs::write(failed.join("record.jsonl"), text).unwrap();
    let output = report(&[path(&before), path(&failed)]);
    succeeded(&output);
    let said = stdout(&output);
    assert!(said.contains("no arm was measured in both runs"), "{said}");
}

#[test]
fn incomparable_runs_list_every_reason() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), "first", 5.0, |_| {});
    let second = run(folder.path(), "second", 5.0, |header| {
        header.experiment = "relay-work".to_owned();
        header.machine.insert("kernel".to_owned(), "6.18.0".into());
    });
    let output = report(&[path(&first), path(&second)]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(
        said,
        "error: these runs cannot be compared: experiments relay-delay and relay-work; \
         kernel \"6.1.0\" and \"6.18.0\"\n"
    );
}

#[test]
fn what_is_no_run_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "run", 5.0, |_| {});
    fs::write(folder.path().join("record.jsonl"), "{}\n").unwrap();
    for (words, expected) in [
        (&["/nonexistent"][..], "/nonexistent/record.jsonl"),
        (&[path(folder.path())], "not a record's header"),
        (&[path(&run), "/nonexistent"], "/nonexistent/record.jsonl"),
    ] {
        let output = report(words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(
            said.contains(expected) && said.lines().count() == 1,
            "{words:?}: {said}"
        );
    }
}

#[test]
fn claims_of_joined_runs_need_both() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), "first", 5.0, |_| {});
    let same = run(folder.path(), "same", 5.2, |_| {});
    let other = run(folder.path(), "other", 20.0, |_| {});
    let verdict = |again: &Path| {
        let output = report(&[path(&first), "--again", path(again), "--json"]);
        succeeded(&output);
        let summary: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let rows = summary["results"].as_array().unwrap();
        let row = rows.iter().find(|row| row["arm"] == "xdp").unwrap();
        assert_eq!(row["runs"][0]["verdict"], "better", "{row}");
        row["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict(&same), "better");
    assert_eq!(verdict(&other), "no-difference");
    let said = stdout(&report(&[path(&first), "--again", path(&other)]));
    assert!(said.contains("this run alone shows one"), "{said}");
    assert!(said.contains("a claim needs both"), "{said}");

    let faster = run(folder.path(), "faster", 5.0, |header| {
        header.arms = vec!["recv".to_owned(), "tc".to_owned()];
    });
    for (again, wanted) in [
        (&faster, "arms recv, xdp and recv, tc"),
        (&first, "is this run itself"),
    ] {
        let output = report(&[path(&first), "--again", path(again)]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(wanted) && said.lines().count() == 1, "{said}");
    }
}
