//! The results of a record: summary.json and the text on a terminal.

use report::record::{Class, Line, Skip, Trial};
use report::{Analysis, Record, Summary, Writer, journal, terminal};
use stats::Verdict;

use crate::common;

#[test]
fn summary_of_a_small_record() {
    let mut summary = Summary::from_record(&common::record(10, 1));
    summary.results.retain(|row| {
        matches!(row.arm.as_str(), "xdp" | "af-xdp" | "recv''") && row.metric != "delay_p99"
    });
    insta::assert_snapshot!(summary.to_json().unwrap());
}

#[test]
fn terminal_of_a_small_record() {
    let record = common::record(20, 1);
    insta::assert_snapshot!(terminal::results(&Analysis::new(&record)));
}

#[test]
fn no_difference_and_unreliable_are_answers() {
    let mut record = common::record(20, 1);
    record.header.questions[0].arms = vec!["mmsg".to_owned()];
    for trial in &mut record.trials {
        if trial.arm == "tc" && trial.block % 5 == 0 {
            trial.flags.push("probe drops".to_owned());
        }
    }
    insta::assert_snapshot!(terminal::results(&Analysis::new(&record)));
}

#[test]
fn advice_follows_the_metrics_direction() {
    let mut record = common::record(20, 1);
    let class = Class {
        name: "small".to_owned(),
        loads: record.header.loads.clone(),
    };
    record.header.questions[1].classes = vec![class];
    let said = |record: &Record| {
        let text = terminal::results(&Analysis::new(record));
        let line = text.lines().find(|line| line.starts_with("small: "));
        line.unwrap().to_owned()
    };
    let cost = said(&record);
    // Names alone: a mean over loads has no interval.
    assert!(
        cost.starts_with("small: xdp by CPU per delivery; "),
        "{cost}"
    );
    assert!(
        cost.contains("; more: ") && cost.ends_with("recv, busy"),
        "{cost}"
    );
    let of = |metric: &&mut report::record::Metric| metric.name == "cpu_ns_per_delivery";
    let metric = record.header.metrics.iter_mut().find(of).unwrap();
    metric.better = report::record::Better::Higher;
    let gain = said(&record);
    assert!(gain.starts_with("small: busy by "), "{gain}");
    assert!(gain.contains("less: ") && gain.ends_with("xdp"), "{gain}");
}

#[test]
fn block_without_arm_skips_its_pair() {
    let mut record = common::record(10, 1);
    record
        .trials
        .retain(|trial| trial.arm != "xdp" || trial.block != 4);
    let summary = Summary::from_record(&record);
    let n = |arm: &str| {
        let of = |row: &&report::Outcome| row.arm == arm && row.metric == "delay_p50";
        summary.results.iter().find(of).unwrap().n
    };
    // A disturbed trial of mmsg counts.
    assert_eq!([n("xdp"), n("tc"), n("mmsg")], [9, 10, 10]);
}

#[test]
fn a_flag_counts_where_a_comparison_rests_on_the_trial() {
    let mut record = common::record(10, 1);
    for trial in &mut record.trials {
        trial.flags.clear();
        if trial.arm == "floor" && trial.block == 5 {
            trial.flags.push("disturbed".to_owned());
        }
    }
    let summary = Summary::from_record(&record);
    let flagged = |metric: &str, arm: &str| {
        let of = |row: &&report::Outcome| row.arm == arm && row.metric == metric;
        summary.results.iter().find(of).unwrap().disturbed
    };
    assert_eq!(flagged("delay_p50", "xdp"), 0);
    assert_eq!(flagged("delay_p50", "floor"), 1);
    // The floor is in it.
    assert_eq!(flagged("added_delay_p50", "xdp"), 1);
    for trial in &mut record.trials {
        if trial.label() == "recv'" && trial.block == 6 {
            trial.flags.push("disturbed".to_owned());
        }
    }
    let summary = Summary::from_record(&record);
    assert!(
        summary
            .results
            .iter()
            .all(|row| row.n == 0 || row.disturbed > 0)
    );
}

fn delay_of_xdp(record: &Record) -> report::Outcome {
    let of = |row: &report::Outcome| row.arm == "xdp" && row.metric == "delay_p50";
    let mut rows = Summary::from_record(record).results.into_iter();
    rows.find(of).expect("xdp has a delay")
}

/// Schema 1 tried disturbed trials again: the first attempt is the result, the last may be in the second opinion.
#[test]
fn first_attempt_counts() {
    let mut record = common::record(10, 1);
    record
        .trials
        .iter_mut()
        .for_each(|trial| trial.flags.clear());
    let undisturbed = delay_of_xdp(&record);
    let at = |trial: &Trial| trial.arm == "xdp" && trial.block.is_multiple_of(2);
    let with_attempts = |trial: Trial| {
        let mut first = trial.clone();
        if !at(&trial) {
            return vec![trial];
        }
        first.flags.push("disturbed".to_owned());
        first.values.insert("delay_p50".to_owned(), 1e6);
        vec![
            first,
            Trial {
                attempt: 1,
                ..trial
            },
        ]
    };
    record.trials = record.trials.into_iter().flat_map(with_attempts).collect();
    let disturbed = delay_of_xdp(&record);
    assert_eq!(undisturbed.verdict, Verdict::Better);
    assert_eq!((disturbed.n, disturbed.disturbed), (10, 5));
    assert!(disturbed.ratio > undisturbed.ratio);
    assert_eq!(disturbed.verdict, Verdict::Unreliable);
    let flags = report::analysis::flags_by_arm(&record);
    let of_xdp = flags.iter().find(|flags| flags.label == "xdp").unwrap();
    assert_eq!((of_xdp.trials, of_xdp.flagged), (15, 5));
}

/// Every trial of a noisy machine may be disturbed: the answer stays, and says so.
#[test]
fn disturbed_machine_gets_an_answer() {
    let mut record = common::record(10, 1);
    for trial in &mut record.trials {
        trial.flags = vec![format!("CPU stolen {}.1 % (usual: 3.0 %)", trial.block)];
    }
    let row = delay_of_xdp(&record);
    assert_eq!(
        (row.verdict, row.n, row.disturbed),
        (Verdict::Better, 10, 10)
    );
    assert_eq!(row.clean, None);
    let summary = Summary::from_record(&record);
    let trials = record.trials.len();
    assert_eq!(
        (summary.disturbance.trials, summary.disturbance.disturbed),
        (trials, trials)
    );
    assert_eq!(summary.disturbance.reasons.len(), 1);
    assert_eq!(summary.disturbance.reasons[0].trials, trials);
}

#[test]
fn disturbed_trials_are_told_from_those_without_a_result() {
    let mut record = common::record(10, 1);
    for trial in &mut record.trials {
        trial.flags.clear();
        match (trial.arm.as_str(), trial.block) {
            ("xdp", 1..4) => {
                let stolen = 5.0 + trial.block as f64;
                trial
                    .flags
                    .push(format!("CPU stolen {stolen:.1} % (usual: 3.0 %)"));
            }
            ("tc", 1..6) => {
                trial.values.clear();
                trial.flags.push("failed: no packet came".to_owned());
            }
            _ => {}
        }
    }
    let found = Summary::from_record(&record).disturbance;
    assert_eq!((found.trials, found.disturbed, found.failed), (90, 3, 5));
    assert_eq!(found.reasons[0].reason, "failed: no packet came");
    let text = terminal::results(&Analysis::new(&record));
    assert!(
        text.contains(
            "3 of 90 trials were disturbed; most often: CPU stolen 6.0 to 8.0 % (usual: 3.0 %). 5 of 90 trials have no result."
        ),
        "{text}"
    );
}

#[test]
fn counts_without_a_baseline_are_told() {
    let mut record = common::record(10, 1);
    let metric = record.header.metric("foreign_packets").unwrap().clone();
    record.header.metrics.push(report::record::Metric {
        name: "bytes_differing".to_owned(),
        unit: "bytes".to_owned(),
        ..metric
    });
    record.header.questions[0]
        .metrics
        .push("bytes_differing".to_owned());
    let load = record.header.loads[0].clone();
    let own = |trial: &&mut Trial| matches!(trial.arm.as_str(), "tc" | "xdp");
    for trial in record.trials.iter_mut().filter(own) {
        trial.values.insert("bytes_differing".to_owned(), 0.0);
    }
    let text = terminal::results(&Analysis::new(&record));
    let equal = "bytes differing: 0 in all 20 trials (tc, xdp)";
    assert!(text.contains(equal), "{text}");
    let analysis = Analysis::new(&record);
    assert!(report::page(&analysis).contains(equal));
    let part = report::DemoPart::Measured {
        analysis: &analysis,
        report: String::new(),
    };
    let answer = report::demo_answer(&part);
    assert!(answer.ends_with(&format!(" {equal}.")), "{answer}");
    for trial in record.trials.iter_mut().filter(own).take(2) {
        trial.values.insert("bytes_differing".to_owned(), 512.0);
    }
    let text = terminal::results(&Analysis::new(&record));
    assert!(
        text.contains("bytes differing: not 0 in 2 of 20 trials, 512 bytes at most (tc, xdp)"),
        "{load}: {text}"
    );
}

#[test]
fn added_delay_is_as_uncertain_as_the_delays() {
    let mut record = common::record(10, 1);
    let width = |record: &Record| {
        let of = |row: &&report::Outcome| row.arm == "xdp" && row.metric == "added_delay_p50";
        let rows = Summary::from_record(record).results;
        let [lower, upper] = rows.iter().find(of).unwrap().ci.unwrap();
        upper - lower
    };
    let exact = width(&record);
    let mut metrics = record.header.metrics.iter_mut();
    let added = metrics.find(|metric| metric.name == "added_delay_p50");
    added.unwrap().resolution = 0.01;
    // Both ends by a hundredth of 27.1 us and of 3.4 us, of which 1.1 us are the floor's.
    let wider = width(&record) - exact;
    assert!((wider - 2.0 * 0.305).abs() < 0.03, "{wider}");
}

#[test]
fn failed_trials_are_in_the_row() {
    let mut record = common::record(10, 1);
    let fail = |record: &mut Record, blocks: &[usize]| {
        let mut trials = record.trials.iter_mut();
        for block in blocks {
            let trial = trials.find(|trial| trial.arm == "xdp" && trial.block == *block);
            let trial = trial.unwrap();
            trial.values.clear();
            trial.flags.push("failed: no packet came".to_owned());
        }
    };
    fail(&mut record, &[3]);
    let row = delay_of_xdp(&record);
    assert_eq!((row.n, row.failed, row.verdict), (10, 1, Verdict::Better));
    fail(&mut record, &[7]);
    let row = delay_of_xdp(&record);
    assert_eq!((row.n, row.failed), (10, 2));
    assert_eq!(row.verdict, Verdict::Unreliable);
    assert_eq!(row.reason.as_deref(), Some("2 of 10 trials failed"));
}

#[test]
fn trial_with_broken_accounts_has_no_result() {
    let mut record = common::record(10, 1);
    let mut trials = record.trials.iter_mut();
    let trial = trials.find(|trial| trial.arm == "xdp" && trial.block == 2);
    trial.unwrap().violations = vec!["unique 9 + missing 0 is not sent 10".to_owned()];
    let row = delay_of_xdp(&record);
    assert_eq!((row.n, row.failed), (9, 1));
    assert_eq!(row.verdict, Verdict::Better);
}

#[test]
fn record_of_schema_1_is_read() {
    let mut record = common::record(2, 1);
    record.header.schema = 1;
    let line = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
    let mut text = line(&Line::Header(record.header));
    let mut trial = record.trials.remove(0);
    let histogram = r#"{"buckets":[[500,7]]}"#;
    trial.histograms = [("delay".to_owned(), serde_json::from_str(histogram).unwrap())].into();
    text += &line(&Line::Trial(trial));
    let path = std::path::Path::new("record.jsonl");
    let read = Record::parse(&text, path).unwrap();
    let buckets: Vec<_> = read.trials[0].histograms["delay"].buckets().collect();
    assert_eq!(buckets, [(stats::bucket(860_159), 7)]);
    let resolution = |name: &str| read.header.metric(name).unwrap().resolution;
    assert!(resolution("delay_p50") > 0.01);
    assert_eq!(resolution("cpu_ns_per_delivery"), 0.0);
    let other = text.replacen("\"schema\":1", "\"schema\":3", 1);
    assert!(Record::parse(&other, path).is_err());
}

#[test]
fn block_number_has_a_limit() {
    let mut record = common::record(1, 1);
    let mut trial = record.trials.remove(0);
    trial.block = 1_000_000_000_000_000;
    let line = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
    let text = line(&Line::Header(record.header)) + &line(&Line::Trial(trial));
    let error = Record::parse(&text, std::path::Path::new("record.jsonl")).unwrap_err();
    assert!(
        error.to_string().contains("block 1000000000000000"),
        "{error}"
    );
}

#[test]
fn added_delay_is_paired_with_the_floor_of_the_block() {
    let record = common::record(10, 1);
    let analysis = Analysis::new(&record);
    let load = &record.header.loads[0];
    let at = |metric: &str, arm: &str| analysis.values(metric, load, arm).unwrap()[&7];
    let added = at("delay_p50", "xdp") - at("delay_p50", "floor");
    assert_eq!(at("added_delay_p50", "xdp"), added);
    assert!(analysis.values("added_delay_p50", load, "floor").is_none());
}

#[test]
fn skipped_arms_keep_their_rows() {
    let summary = Summary::from_record(&common::record(10, 2));
    let skipped: Vec<_> = summary
        .results
        .iter()
        .filter(|row| row.verdict == Verdict::Skipped)
        .collect();
    assert_eq!(skipped.len(), 5 * 2);
    assert_eq!(
        skipped[0].reason.as_deref(),
        Some("kernel lacks CONFIG_XDP_SOCKETS")
    );
}

#[test]
fn torn_last_line_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let record = common::record(1, 1);
    let mut writer = Writer::create(&path, &record.header).unwrap();
    for trial in record.trials.iter().take(3) {
        writer.trial(trial.clone()).unwrap();
    }
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 40]).unwrap();

    let torn = Record::read(&path).unwrap();
    assert_eq!((torn.trials.len(), torn.notices.len()), (2, 1));

    let (mut writer, before) = Writer::resume(&path).unwrap();
    let last = &record.trials[2];
    assert_eq!(before.complete().len(), 2);
    assert!(!before.complete().contains(&journal::Key::of(last)));
    writer.trial(last.clone()).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
}

/// A block that was cut off while it was written runs again, and may need fewer attempts.
#[test]
fn rerun_trial_replaces_former_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let record = common::record(1, 1);
    let mut writer = Writer::create(&path, &record.header).unwrap();
    let attempts = |numbers: &[u8]| -> Vec<Trial> {
        let trial = |&attempt: &u8| Trial {
            attempt,
            ..record.trials[0].clone()
        };
        numbers.iter().map(trial).collect()
    };
    for trial in attempts(&[0, 1, 2, 0, 1]) {
        writer.trial(trial).unwrap();
    }
    assert_eq!(Record::read(&path).unwrap().trials, attempts(&[0, 1]));
}

#[test]
fn a_record_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let header = common::record(1, 1).header;
    Writer::create(&path, &header).unwrap();
    assert!(Writer::create(&path, &header).is_err());
}

#[test]
fn malformed_record_names_its_line() {
    let path = std::path::Path::new("record.jsonl");
    let message = |text: &str| Record::parse(text, path).unwrap_err().to_string();
    assert!(message("").contains("header"));
    assert!(message("{}\n").contains("header"));
    let header = |schema| {
        let mut header = common::record(1, 1).header;
        header.schema = schema;
        serde_json::to_string(&Line::Header(header)).unwrap()
    };
    assert!(message(&format!("{}\n", header(9))).contains("schema 9"));
    assert!(message(&format!("{}\nnonsense\n", header(1))).starts_with("record.jsonl:2: "));
}

#[test]
fn a_trial_that_ran_again_counts_once() {
    let record = common::record(1, 1);
    let mut again = record.trials[0].clone();
    again.seed = 99;
    let lines = std::iter::once(Line::Header(record.header.clone()))
        .chain([record.trials[0].clone(), again].map(Line::Trial))
        .map(|line| serde_json::to_string(&line).unwrap() + "\n");
    let text: String = lines.collect();
    let read = Record::parse(&text, "record.jsonl".as_ref()).unwrap();
    assert_eq!(read.trials.len(), 1);
    assert_eq!(read.trials[0].seed, 99);
}

#[test]
fn advice_names_the_arm_of_the_least_cost_that_loses_nothing() {
    let mut record = common::record(12, 2);
    let loads = record.header.loads.clone();
    record.header.questions[1].classes = vec![
        Class {
            name: "any rate".to_owned(),
            loads: loads.clone(),
        },
        Class {
            name: "no such rate".to_owned(),
            loads: Vec::new(),
        },
    ];
    for trial in &mut record.trials {
        trial.flags.clear();
        let lost = if trial.arm == "busy" && trial.load == loads[1] {
            3.0
        } else {
            0.5
        };
        trial.values.insert("loss_pct".to_owned(), lost);
        let latency = ("row_latency_us".to_owned(), 12.0);
        trial.values.extend([latency]);
    }
    let text = terminal::results(&Analysis::new(&record));
    let advice = text
        .lines()
        .find(|line| line.starts_with("any rate: "))
        .unwrap();
    // 1210 ns; tc has 1290, and recv 4700.
    assert!(advice.starts_with("any rate: xdp by "), "{advice}");
    assert!(advice.contains("recv; loses packets: busy"), "{advice}");
    let (_, latency) = advice
        .split_once("; its rows come after 12.0 us (")
        .unwrap();
    assert!(
        latency.ends_with(')') && !advice.contains("floor"),
        "{advice}"
    );
    assert!(!text.contains("no such rate"), "{text}");
}

#[test]
fn given_up_arm_keeps_its_rows() {
    let mut record = common::record(12, 2);
    let loads = record.header.loads.clone();
    // It failed from the eighth block on, and never ran under the second load.
    let ran = |trial: &Trial| trial.arm != "tc" || trial.block < 8 && trial.load == loads[0];
    record.trials.retain(ran);
    let skip = Skip {
        arm: "tc".to_owned(),
        load: None,
        reason: "it failed 3 times in a row up to block 9: no engine answers".to_owned(),
        remedy: "start it".to_owned(),
    };
    let lines = std::iter::once(Line::Header(record.header.clone()))
        .chain(record.trials.iter().cloned().map(Line::Trial))
        .chain([Line::Skip(skip)])
        .map(|line| serde_json::to_string(&line).unwrap() + "\n");
    let text: String = lines.collect();
    let read = Record::parse(&text, "record.jsonl".as_ref()).unwrap();
    let analysis = Analysis::new(&read);
    let summary = Summary::of(&analysis);
    let row = |metric: &str, load: &String, arm: &str| {
        let rows = summary.results.iter().filter(|row| {
            row.metric == metric && row.load == *load && row.arm == arm && row.baseline == "recv"
        });
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), 1, "{metric} {load} {arm}");
        rows[0]
    };
    let first = row("delay_p50", &loads[0], "tc");
    assert_eq!((first.n, first.verdict), (8, Verdict::Better));
    let second = row("delay_p50", &loads[1], "tc");
    assert_eq!((second.n, second.verdict), (0, Verdict::Skipped));
    for row in [first, second] {
        assert!(
            row.reason.as_ref().unwrap().contains("no engine answers"),
            "{row:?}"
        );
        assert_eq!(row.remedy.as_deref(), Some("start it"));
    }
    let xdp = row("delay_p50", &loads[0], "xdp");
    assert_eq!((xdp.n, &xdp.reason), (12, &None));
    let text = terminal::results(&analysis);
    assert!(
        text.contains("tc ran no further: it failed 3 times"),
        "{text}"
    );
    assert!(text.contains("af-xdp did not run: "), "{text}");
    assert!(report::page(&analysis).contains("up to block 9"));
}

#[test]
fn a_percentile_that_only_fast_trials_have_is_nobodys() {
    let mut record = common::record(20, 1);
    for trial in &mut record.trials {
        if trial.arm == "xdp" && trial.block < 3 {
            trial.values.remove("delay_p99");
        }
    }
    let analysis = Analysis::new(&record);
    let has = |arm: &str, metric: &str| {
        let mut rows = analysis.rows.iter();
        rows.any(|row| row.arm == arm && row.metric.name == metric)
    };
    assert!(has("xdp", "delay_p50") && has("tc", "delay_p99"));
    assert!(!has("xdp", "delay_p99"));
}
