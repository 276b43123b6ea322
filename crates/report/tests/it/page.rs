//! report.html and its figures: well-formed, self-contained, small.

use report::record::{Headline, Metric, Span};
use report::{Analysis, DemoPart, demo, demo_answer, figures, page, png};
use roxmltree::{Document, ParsingOptions};

use crate::common;

fn parse(text: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text, options).expect("well-formed")
}

/// Names that would break markup or load something, if one were not escaped.
fn hostile() -> report::Record {
    let mut record = common::record(10, 1);
    record.header.experiment = "<script>alert(1)</script>".to_owned();
    record.header.questions[0].text = "a < b & \"c\"?".to_owned();
    record.header.skipped[0].reason = "<img src=x onerror=y>\u{1}".to_owned();
    for trial in &mut record.trials {
        trial.flags = vec!["a & <b>".to_owned()];
        let stacks = trial.stacks.as_mut().expect("sampled stacks");
        stacks.folded.insert("a<T>;b&&\"c\"".to_owned(), 500);
    }
    record
}

#[test]
fn the_page_is_well_formed_whatever_names_hold() {
    for record in [common::record(10, 1), hostile()] {
        let html = page(&Analysis::new(&record));
        let page = parse(&html);
        let count = |name: &str| {
            page.descendants()
                .filter(|node| node.has_tag_name(name))
                .count()
        };
        assert_eq!(count("script") + count("img") + count("link"), 0);
        assert_eq!((count("h1"), count("main")), (1, 1));
        assert!(count("th") > 20);
    }
}

#[test]
fn a_full_page_stays_under_a_megabyte_and_loads_nothing() {
    let record = common::record(20, 2);
    let html = page(&Analysis::new(&record));
    println!("{} bytes", html.len());
    assert!(html.len() < 1_000_000);
    let page = parse(&html);
    let loads = page
        .descendants()
        .flat_map(|node| node.attributes())
        .filter(|at| matches!(at.name(), "src" | "href") && !at.value().starts_with('#'));
    assert_eq!(loads.count(), 0);
    assert!(!html.contains("url(") && !html.contains("@import"));
}

#[test]
fn identifiers_are_unique_and_references_resolve() {
    let record = common::record(10, 2);
    let html = page(&Analysis::new(&record));
    let page = parse(&html);
    let ids: Vec<&str> = page
        .descendants()
        .filter_map(|node| node.attribute("id"))
        .collect();
    let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
    for node in page.descendants() {
        let named = node
            .attribute("aria-labelledby")
            .unwrap_or_default()
            .split(' ');
        let linked = node.attribute("href").and_then(|at| at.strip_prefix('#'));
        for id in named.chain(linked).filter(|id| !id.is_empty()) {
            assert!(ids.contains(&id), "{id}");
        }
    }
}

#[test]
fn headings_descend_without_a_gap_and_figures_have_words() {
    let record = common::record(10, 2);
    let html = page(&Analysis::new(&record));
    let page = parse(&html);
    let mut last = 0;
    for node in page.descendants() {
        if let Some(level) = node
            .tag_name()
            .name()
            .strip_prefix('h')
            .and_then(|n| n.parse().ok())
        {
            assert!(level <= last + 1, "h{last} then h{level}");
            last = level;
        }
        if node.has_tag_name("svg") {
            assert_eq!(node.attribute("role"), Some("img"));
            let has = |name: &str| node.children().any(|child| child.has_tag_name(name));
            assert!(has("title") && has("desc"));
        }
        if node.has_tag_name("figure") {
            assert!(
                node.children()
                    .any(|child| child.has_tag_name("figcaption"))
            );
        }
    }
}

#[test]
fn disturbance_leads_the_page() {
    let mut record = common::record(10, 1);
    for trial in &mut record.trials {
        trial.flags = vec!["CPU stolen 6.1 % (usual: 3.0 %)".to_owned()];
    }
    record.folder = "an out".into();
    let html = page(&Analysis::new(&record));
    parse(&html);
    let lead = html.split("</header>").next().unwrap();
    assert!(lead.contains("90 of 90 trials were disturbed; most often: CPU stolen 6.1 %"));
    let command = "lowroad compare relay-delay --seed 4711 --out 'an out' --resume --blocks 20";
    assert!(lead.contains(command), "{lead}");
    assert!(lead.contains("Claims hold for this machine in this run."));
    // This is the maximum.
    record.header.blocks = 1000;
    assert!(!page(&Analysis::new(&record)).contains("--resume"));
}

#[test]
fn headline_answers_in_words() {
    let mut record = common::record(20, 1);
    record.header.questions[0].headline = Some(Headline {
        arm: "tc".to_owned(),
        text: "Relaying in the kernel takes {ratio} of the delay of a userspace relay".to_owned(),
    });
    let html = page(&Analysis::new(&record));
    let words = "Relaying in the kernel takes 0.134 of the delay of a userspace relay (99.7% CI 0.127-0.138, n=20).";
    assert!(html.contains(&format!("<p class=\"headline\">{words}</p>")));
    record.trials.retain(|trial| trial.block < 3);
    let html = page(&Analysis::new(&record));
    assert!(html.contains("This run cannot tell tc from recv: only 3 blocks"));
}

#[test]
fn demo_page_has_a_part_for_each_job() {
    let mut record = common::record(10, 1);
    record.header.origin = vec!["about 100 us less".to_owned()];
    let analysis = Analysis::new(&record);
    let parts = [
        DemoPart::Measured {
            analysis: &analysis,
            report: "demo-relay/report.html".to_owned(),
        },
        DemoPart::Missing {
            experiment: "demo-router".to_owned(),
            reason: "needs root; run with sudo".to_owned(),
        },
    ];
    let html = demo(&parts);
    parse(&html);
    assert!(html.contains("What others published: about 100 us less"));
    assert!(html.contains("href=\"demo-relay/report.html\""));
    assert!(html.contains("Did not run: needs root; run with sudo"));
    assert_eq!(
        demo_answer(&parts[1]),
        "demo-router did not run: needs root; run with sudo"
    );
}

#[test]
fn an_empty_record_still_makes_a_page() {
    let mut record = common::record(1, 1);
    record.trials.clear();
    parse(&page(&Analysis::new(&record)));
    assert!(figures::headline(&Analysis::new(&record)).is_none());
}

#[test]
fn every_figure_stands_alone_and_the_headline_becomes_a_png() {
    let record = common::record(10, 1);
    let analysis = Analysis::new(&record);
    let all = figures::all(&analysis);
    assert_eq!(all.len(), 2 * record.header.metrics.len() + 2);
    for figure in all {
        parse(&figure.standalone());
    }
    let headline = figures::headline(&analysis).unwrap();
    let image = png(&headline, 2.0).unwrap();
    assert_eq!(&image[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(u32::from_be_bytes(image[16..20].try_into().unwrap()), 1360);
}

#[test]
fn batch_timeline_uses_undisturbed_trial() {
    let mut record = common::record(10, 1);
    let span = |stream, part: &str, start_us, end_us| Span {
        stream,
        part: part.to_owned(),
        start_us,
        end_us,
    };
    let trials = record.trials.iter_mut();
    for (at, trial) in trials.filter(|trial| trial.arm == "xdp").enumerate() {
        let end_us = if at == 0 { 999.0 } else { 40.0 };
        trial
            .flags
            .extend((at == 0).then(|| "disturbed".to_owned()));
        trial.spans = vec![
            span(0, "copy in", 0.0, 10.0),
            span(1, "kernel", 10.0, end_us),
        ];
    }
    let drawn = |record: &report::Record| {
        let figures = figures::all(&Analysis::new(record));
        let mut timelines = figures
            .into_iter()
            .filter(|figure| figure.id() == "batch-0-timeline");
        timelines.next().map(|figure| figure.standalone())
    };
    let figure = drawn(&record).unwrap();
    parse(&figure);
    assert!(figure.contains("a row for each stream: xdp 40"), "{figure}");
    // A bar each, beside the keys of the three parts.
    for (class, bars) in [("state-0", 2), ("state-2", 2), ("state-1", 1)] {
        let of_class = format!("<g class=\"{class}\">");
        assert_eq!(figure.matches(&of_class).count(), bars, "{class}");
    }
    assert!(!page(&Analysis::new(&record)).contains("-timeline"));
    let metric = record.header.metrics[0].clone();
    record.header.metrics.push(Metric {
        name: "kernel_us".to_owned(),
        ..metric
    });
    record.header.questions[0]
        .metrics
        .push("kernel_us".to_owned());
    assert!(page(&Analysis::new(&record)).contains("id=\"q0-0-timeline-t\""));
    for trial in &mut record.trials {
        trial.spans.clear();
    }
    assert!(drawn(&record).is_none());
}

/// For looking at: `LOWROAD_REPORT_OUT=folder cargo test -p report --test it -- written`.
#[test]
fn the_page_is_written_where_asked() {
    let Some(folder) = std::env::var_os("LOWROAD_REPORT_OUT").map(std::path::PathBuf::from) else {
        return;
    };
    let record = common::record(20, 2);
    let analysis = Analysis::new(&record);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("report.html"), page(&analysis)).unwrap();
    let headline = figures::headline(&analysis).unwrap();
    std::fs::write(folder.join("headline.png"), png(&headline, 2.0).unwrap()).unwrap();
}

#[test]
fn question_figures_show_its_arms() {
    let mut record = common::record(10, 1);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    record.header.questions[0].arms = names(&["tc"]);
    record.header.questions[0].against = names(&["busy"]);
    let mut other = record.header.questions[0].clone();
    other.arms = names(&["xdp"]);
    other.against = Vec::new();
    record.header.questions[1] = other;
    let analysis = Analysis::new(&record);
    let html = page(&analysis);
    let part = |from: &str, to: &str| {
        let (_, rest) = html.split_once(from).unwrap();
        rest.split_once(to).unwrap().0.to_owned()
    };
    let first = part("id=\"q0\">", "id=\"q1\">");
    let second = part("id=\"q1\">", "id=\"q2\">");
    let drawn = |part: &str, kind: &str| {
        let mut figures = part.split("<svg").filter(|figure| figure.contains(kind));
        let figure = figures
            .next()
            .unwrap()
            .split("</svg>")
            .next()
            .unwrap()
            .to_owned();
        let arms = ["recv", "mmsg", "gso", "busy", "tc", "xdp"].into_iter();
        arms.filter(|arm| figure.contains(&format!(">{arm}<")))
            .collect::<Vec<_>>()
    };
    for kind in ["-boxes-t", "-series-t"] {
        assert_eq!(drawn(&first, kind), ["recv", "busy", "tc"], "{kind}");
        assert_eq!(drawn(&second, kind), ["recv", "xdp"], "{kind}");
    }
    // Each row is in one of the tables; rows that no question asks about are in the first.
    let rows = |part: &str, arm: &str| part.matches(&format!("</span>{arm}</th>")).count();
    assert!(rows(&first, "tc") > 0 && rows(&second, "tc") == 0);
    assert!(rows(&first, "xdp") == 0 && rows(&second, "xdp") > 0);
    assert!(rows(&first, "gso") > 0 && rows(&second, "gso") == 0);
    let all = figures::all(&analysis);
    let ids: Vec<&str> = all.iter().map(|figure| figure.id()).collect();
    assert!(ids.contains(&"delay_p50-0-boxes-q0") && ids.contains(&"delay_p50-0-boxes-q1"));
    assert!(ids.contains(&"foreign_packets-0-boxes"), "{ids:?}");
}
