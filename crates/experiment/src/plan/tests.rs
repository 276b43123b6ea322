//! Shipped plans are sound, labels have one form, and what narrows a plan says so.

use std::time::Duration;

use control::config::Document;

use super::*;
use crate::catalog::{SHIPPED, find, shipped};
use crate::jobs::relay;
use crate::jobs::relay::load::{Link, LoadSource};
use crate::load::JobLoad;

#[test]
fn shipped_experiments_are_valid_and_named_once() {
    let plans = shipped().unwrap();
    let mut names: Vec<_> = plans.iter().map(|plan| &plan.name).collect();
    names.dedup();
    assert_eq!(names.len(), SHIPPED.len());
}

#[test]
fn an_unknown_arm_is_refused_by_name() {
    let plan = find("relay-delay").unwrap();
    let error = plan
        .narrowed(false, &["warp".into()], None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("warp") && error.contains("xdp"), "{error}");
}

#[test]
fn headlines_are_about_the_baseline_of_the_file() {
    let headlines = |arms: &[&str]| {
        let arms: Vec<String> = arms.iter().map(|arm| (*arm).to_owned()).collect();
        let plan = find("relay-delay").unwrap();
        let plan = plan.narrowed(false, &arms, None).unwrap();
        let asked = plan.questions.iter();
        let count = asked.filter(|question| question.headline.is_some()).count();
        (plan.baseline, count)
    };
    assert_eq!(headlines(&["recv", "tc"]), ("recv".to_owned(), 1));
    assert_eq!(headlines(&["busy", "tc"]), ("busy".to_owned(), 0));
}

#[test]
fn kernel_paths_are_compared_with_every_kind_of_userspace() {
    let against = |name: &str, metric: &str| {
        let plan = find(name).unwrap();
        let asked = plan
            .questions
            .iter()
            .filter(|asked| asked.metrics.iter().any(|m| m == metric));
        let mut others: Vec<String> = asked.flat_map(|asked| asked.against.clone()).collect();
        others.push(plan.baseline.clone());
        others
    };
    for (name, metric, others) in [
        (
            "relay-delay",
            "delay_p50",
            &["recv", "mmsg", "busy", "floor"][..],
        ),
        ("relay-delay", "delay_p99", &["recv", "mmsg"]),
        (
            "relay-throughput",
            "deliveries_per_s",
            &["recv", "mmsg", "gso", "busy", "af-xdp", "tc"],
        ),
        ("relay-cpu", "cpu_ns_per_delivery", &["recv"]),
        (
            "relay-peers",
            "delay_p50",
            &["recv", "rtpengine", "nginx", "socat", "dnat"],
        ),
        (
            "relay-peers",
            "delay_p99",
            &["recv", "rtpengine", "nginx", "socat"],
        ),
    ] {
        let asked = against(name, metric);
        for other in others {
            assert!(
                asked.iter().any(|arm| arm == other),
                "{name} {metric} {other}"
            );
        }
    }
}

#[test]
fn quick_shortens_long_loads_and_leaves_short_ones() {
    let mut plan = find("relay-delay").unwrap();
    plan.quick.duration = Some(Span(Duration::from_millis(300)));
    plan.quick.loads = vec![0, 1];
    plan.loads[0].set_duration(Span(Duration::from_millis(100)));
    plan.loads[1].set_duration(Span(Duration::from_secs(1)));
    let lasts = |plan: Plan| {
        plan.loads
            .iter()
            .map(|load| load.duration().0)
            .collect::<Vec<_>>()
    };
    let whole = lasts(plan.clone());
    assert_eq!(
        lasts(plan.clone().narrowed(false, &[], None).unwrap()),
        whole
    );
    let quick = lasts(plan.narrowed(true, &[], None).unwrap());
    assert_eq!(
        quick,
        [Duration::from_millis(100), Duration::from_millis(300)]
    );
}

#[test]
fn labels_have_one_fixed_form() {
    let plan = find("relay-delay").unwrap();
    let labels: Vec<_> = plan.loads.iter().map(Load::label).collect();
    assert_eq!(labels[0], "200B 10kpps N=1");
    assert!(labels.contains(&"200B 10kpps N=1 application".to_owned()));
    let plan = find("relay-work").unwrap();
    let labels: Vec<_> = plan.loads.iter().map(Load::label).collect();
    assert_eq!(labels[1], "200B 2kpps N=1 work=10us");
    assert_eq!(labels[4], "200B 2kpps N=1 fec-group=10");
    let plan = find("relay-jitter").unwrap();
    assert_eq!(plan.loads[1].label(), "200B 1kpps N=1 jitter=100us");
    let (load, _) = plan.loads[1].of_job::<relay::Load>().unwrap();
    let mut load = load.clone();
    (load.from, load.payload) = (LoadSource::Pcap("calls/voice.pcap".into()), None);
    (load.link, load.jitter) = (Link::Bridge, None);
    assert_eq!(load.label(), "voice.pcap 1kpps N=1 bridge");
}

#[test]
fn what_is_measured_is_named_as_files_name_it() {
    for text in SHIPPED {
        let file: toml::Table = text.parse().unwrap();
        let plan = crate::catalog::parse(&Document::new("experiment", *text)).unwrap();
        let stated = file["load"].as_array().unwrap();
        assert_eq!(stated.len(), plan.loads.len(), "{}", plan.name);
        for (load, stated) in plan.loads.iter().zip(stated) {
            let measure = stated
                .get("measure")
                .or_else(|| file.get("measure"))
                .unwrap();
            assert_eq!(measure.as_str(), Some(load.measure()), "{}", plan.name);
        }
    }
}
