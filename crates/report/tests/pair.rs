//! Two runs side by side.

use report::{Analysis, pair};

mod common;

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
    assert!((of("xdp").effect - 2.0).abs() < 1e-9);
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
