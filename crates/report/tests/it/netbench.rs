//! Questions about several tests, each with a metric of its own; names with a slash; cards, and other machines.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

use report::record::{Better, Effect, Metric, Question};
use report::{Analysis, Record, figures, page, terminal};
use serde_json::json;

use crate::common;

const LOADS: [&str; 3] = ["test=tcp_rr", "test=udp_rr", "test=tcp_stream"];
const METRICS: [(&str, &str, Better); 4] = [
    ("tcp_rr_us_p50", "us", Better::Lower),
    ("udp_rr_us_p50", "us", Better::Lower),
    ("tcp_stream_mbps", "Mb/s", Better::Higher),
    ("cpu_s_per_gbit", "s", Better::Lower),
];

/// A run of netbench with the arms of another one, of which each load has the metric of its test.
fn record() -> Record {
    let mut record = common::record(12, 1);
    let header = &mut record.header;
    header.job = "netbench".to_owned();
    header.loads = LOADS.map(str::to_owned).to_vec();
    header.skipped.clear();
    header.metrics = METRICS
        .iter()
        .map(|(name, unit, better)| Metric {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
            better: *better,
            primary: true,
            effect: Effect::Ratio,
            resolution: 0.0,
        })
        .collect();
    let question = |text: &str, metrics: &[&str]| Question {
        text: text.to_owned(),
        metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
        ..Question::default()
    };
    header.questions = vec![
        question(
            "How long?",
            &["tcp_rr_us_p50", "udp_rr_us_p50", "tcp_stream_mbps"],
        ),
        question("How much?", &["tcp_stream_mbps"]),
        question("For what?", &["cpu_s_per_gbit"]),
    ];
    let rename = |arm: &mut String| {
        *arm = match arm.as_str() {
            "recv" => "native/direct".to_owned(),
            "mmsg" => "vm-rt/direct+real-time".to_owned(),
            other => format!("oci/{other}"),
        };
    };
    header.arms.iter_mut().for_each(rename);
    rename(&mut header.baseline);
    let trials = std::mem::take(&mut record.trials);
    for mut trial in trials {
        rename(&mut trial.arm);
        trial.flags.clear();
        let took = trial.values["delay_p50"];
        for (load, (metric, ..)) in LOADS.iter().zip(METRICS) {
            let mut trial = trial.clone();
            trial.load = (*load).to_owned();
            trial.values = [(metric.to_owned(), took)].into();
            if metric == "tcp_stream_mbps" {
                trial.values = [
                    (metric.to_owned(), 1000.0 - took),
                    ("cpu_s_per_gbit".to_owned(), took),
                ]
                .into();
            }
            record.trials.push(trial);
        }
    }
    record
}

/// The lines of a question under a load, without the one that asks.
fn answer<'a>(text: &'a str, question: &str, load: &str) -> Vec<&'a str> {
    let mut lines = text
        .lines()
        .skip_while(|line| !(line.starts_with(question) && line.ends_with(load)));
    lines.next();
    lines.take_while(|line| line.starts_with("  ")).collect()
}

#[test]
fn question_uses_each_tests_metric() {
    let record = record();
    let text = terminal::results(&Analysis::new(&record));
    let tcp = answer(&text, "How long?", "test=tcp_rr").join("\n");
    assert!(
        tcp.contains("oci/xdp takes ") && tcp.contains("tcp rr p50 3."),
        "{text}"
    );
    let udp = answer(&text, "How long?", "test=udp_rr").join("\n");
    assert!(udp.contains("udp rr p50 3."), "{text}");
    // Goodput does not answer how long a frame takes.
    assert!(
        answer(&text, "How long?", "test=tcp_stream").is_empty(),
        "{text}"
    );
    let much = answer(&text, "How much?", "test=tcp_stream").join("\n");
    assert!(
        much.contains("tcp stream goodput 99") && much.contains("Mb/s"),
        "{text}"
    );
    let spent = answer(&text, "For what?", "test=tcp_stream").join("\n");
    assert!(spent.contains("x native/direct's CPU per Gbit"), "{text}");
    let html = page(&Analysis::new(&record));
    for title in [
        "tcp_rr_us_p50 by arm, test=tcp_rr",
        "udp_rr_us_p50 by arm, test=udp_rr",
    ] {
        assert!(html.contains(title), "{title}");
    }
}

#[test]
fn names_of_arms_stay_inside_their_figures() {
    let record = record();
    let all = figures::all(&Analysis::new(&record));
    for figure in all.iter().filter(|figure| figure.id().ends_with("-boxes")) {
        let svg = figure.standalone();
        let mut texts = svg.split("<text ").skip(1);
        let named = texts
            .find(|text| text.contains(">vm-rt/direct+real-time<"))
            .unwrap();
        let x = named
            .split("x=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        // They end there, and a letter is about 7 wide.
        assert!(
            x.parse::<f64>().unwrap() > 22.0 * 7.0,
            "{}: {x}",
            figure.id()
        );
    }
    assert!(all.iter().all(|figure| !figure.id().contains('/')));
}

#[test]
fn line_rate_appears_with_goodput() {
    let mut record = record();
    let drawn = |record: &Record| {
        let analysis = Analysis::new(record);
        let html = page(&analysis);
        let with_line = figures::all(&analysis)
            .into_iter()
            .filter(|figure| figure.standalone().contains(">line rate<"));
        let ids: Vec<String> = with_line.map(|figure| figure.id().to_owned()).collect();
        (ids, html.matches("line rate is 1000 Mb/s").count())
    };
    assert_eq!(drawn(&record), (vec![], 0));
    for trial in &mut record.trials {
        trial.environment.insert("line.mtu".to_owned(), json!(1500));
        let speed = json!(1000);
        trial
            .environment
            .insert("line.speed_mbps".to_owned(), speed);
    }
    // Two round trips and a goodput; CPU has no line.
    assert_eq!(
        drawn(&record),
        (vec!["tcp_stream_mbps-2-boxes".to_owned()], 3)
    );
    // Two cards that differ have no line.
    let other = json!(2500);
    let facts = &mut record.trials[0].environment;
    facts.insert("line.speed_mbps".to_owned(), other);
    assert_eq!(drawn(&record).1, 2);
    // The values are too far below the line to show both.
    for trial in &mut record.trials {
        let speed = json!(400_000);
        trial
            .environment
            .insert("line.speed_mbps".to_owned(), speed);
    }
    assert_eq!(drawn(&record).0, [""; 0]);
}

#[test]
fn remote_noise_is_disclaimed() {
    let mut record = record();
    let said = "Served by other machines: metal (tcp://192.0.2.2:7411). Noise on those machines is not measured";
    let text = |record: &Record| terminal::results(&Analysis::new(record));
    assert!(!text(&record).contains("other machines"));
    let agent = "tcp://192.0.2.2:7411".to_owned();
    record.header.hosts.insert("metal".to_owned(), agent);
    assert!(text(&record).starts_with(said), "{}", text(&record));
    assert!(page(&Analysis::new(&record)).contains(said));
}
