//! Two runs side by side.

use report::record::Method;
use report::{Analysis, pair};

use crate::common;

#[test]
fn runs_of_one_machine_stand_side_by_side() {
    let (first, mut second) = (common::record(20, 1), common::record(20, 1));
    for trial in second.trials.iter_mut().filter(|trial| trial.arm == "xdp") {
        *trial.values.get_mut("delay_p50").unwrap() *= 2.0;
    }
    let (first, second) = (Analysis::new(&first), Analysis::new(&second));
    let changes = pair::pair(&first, &second).unwrap();
    let of = |arm: &str| {
        let found = |change: &&pair::Change| change.arm == arm && change.metric == "delay_p50";
        changes.iter().find(found).unwrap()
    };
    assert!((of("xdp").effect.unwrap() - 2.0).abs() < 1e-9);
    assert!(of("xdp").interval.unwrap()[0] > 1.5);
    let [low, high] = of("tc").interval.unwrap();
    assert!(low < 1.0 && high > 1.0);
    insta::assert_snapshot!(pair::side_by_side(&first, &changes));
}

#[test]
fn other_machines_and_loads_are_refused_by_name() {
    let (first, mut second) = (common::record(10, 1), common::record(10, 1));
    second
        .header
        .machine
        .insert("kernel".to_owned(), "6.1.0".into());
    second.header.loads = vec!["64B 1kpps N=1".to_owned()];
    let refused = pair::pair(&Analysis::new(&first), &Analysis::new(&second)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "these runs cannot be compared: kernel \"6.18.0\" and \"6.1.0\"; no load in common"
    );
}

/// Has a record say for how long its trials lasted, and what kept the CPUs awake.
fn measured(record: &mut report::Record, duration: &str, idle: &str) {
    let method = Method {
        measure: "delay".to_owned(),
        duration: duration.to_owned(),
    };
    let loads = record.header.loads.iter();
    record.header.methods = loads.map(|load| (load.clone(), method.clone())).collect();
    record.header.idle = Some(idle.to_owned());
}

#[test]
fn other_measures_are_refused() {
    let run = |duration, idle| {
        let mut record = common::record(10, 1);
        measured(&mut record, duration, idle);
        record
    };
    let reasons = |first: &report::Record, second: &report::Record| {
        let pair = pair::pair(&Analysis::new(first), &Analysis::new(second));
        pair.err().map(|refused| refused.reasons)
    };
    let whole = run("600ms", "none");
    assert_eq!(reasons(&whole, &run("600ms", "none")), None);
    assert_eq!(
        reasons(&whole, &run("200ms", "burner")).unwrap(),
        [
            "idle none and burner",
            "200B 10kpps N=1: delay for 600ms and delay for 200ms"
        ]
    );
    // One that does not say it may have been measured alike.
    assert_eq!(reasons(&whole, &common::record(10, 1)), None);
}

/// Has an arm run in a guest in every trial.
fn in_a_guest(record: &mut report::Record, arm: &str, accelerator: &str, kernel: &str) {
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == arm) {
        let facts = [
            ("host.server.accelerator", accelerator.into()),
            ("host.server.kernel", kernel.into()),
            ("host.server.emulated", (accelerator == "tcg").into()),
        ];
        let facts = facts.map(|(name, value): (_, serde_json::Value)| (name.to_owned(), value));
        trial.environment.extend(facts);
    }
}

#[test]
fn what_was_emulated_is_shown_and_not_put_into_relation() {
    let [first, second] = [1, 2].map(|_| {
        let mut record = common::record(20, 1);
        in_a_guest(&mut record, "xdp", "tcg", "6.1.0-rt");
        record
    });
    let (first, second) = (Analysis::new(&first), Analysis::new(&second));
    let changes = pair::pair(&first, &second).unwrap();
    let of = |arm: &str| {
        let found = |change: &&pair::Change| change.arm == arm && change.metric == "delay_p50";
        changes.iter().find(found).unwrap()
    };
    assert_eq!((of("xdp").effect, of("xdp").interval), (None, None));
    assert!(of("tc").effect.is_some());
    let text = pair::side_by_side(&first, &changes);
    let mut lines = text.lines().filter(|line| line.starts_with("  xdp "));
    assert!(lines.all(|line| line.contains("EMULATED   -")), "{text}");
}

#[test]
fn guests_by_another_accelerator_or_with_another_kernel_are_refused() {
    let run = |accelerator, kernel| {
        let mut record = common::record(10, 1);
        in_a_guest(&mut record, "xdp", accelerator, kernel);
        record
    };
    let refused = |first: &report::Record, second: &report::Record| {
        let pair = pair::pair(&Analysis::new(first), &Analysis::new(second));
        pair.unwrap_err().reasons
    };
    assert_eq!(
        refused(&run("tcg", "6.1.0"), &run("kvm", "6.1.0")),
        ["xdp: host.server.accelerator \"tcg\" and \"kvm\""]
    );
    assert_eq!(
        refused(&run("kvm", "6.1.0"), &run("kvm", "6.1.1-rt")),
        ["xdp: host.server.kernel \"6.1.0\" and \"6.1.1-rt\""]
    );
}
