//! Models of a live run by the real binary: replaced while it runs, and told to Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::live_capture::{Capture, FLOWS, FRAMES, account};
use crate::relay_server::errors;

/// One leaf: every flow is of the second class.
const TREE: &str = r#"{"format":"lowroad-trees-1","model":"by hand","columns":["packets"],"inputs":1,
"labels":["other","NAME"],"compare":"single","link":"mean","base":["0.0"],"trees":[{"output":0,
"left":[-1],"right":[-1],"feature":[-2],"threshold":["-2.0"],"missing_left":null,"value":[["1.0"]]}]}"#;

/// Puts a model in the place of the one before, as one should: by a rename.
fn put(folder: &Path, name: &str, action: &str) {
    let trees = format!("{name}.json");
    fs::write(folder.join(&trees), TREE.replace("NAME", name)).unwrap();
    let manifest = format!(
        "name = \"{name}\"\ntrees = \"{trees}\"\nschema = \"tree.v1\"\n\
         columns = [\"tree.v1/packets\"]\n\
         classes = [{{ name = \"other\" }}, {{ name = \"{name}\", {action} }}]\n"
    );
    rename(folder, &manifest);
}

fn rename(folder: &Path, manifest: &str) {
    let next = folder.join("next.toml");
    fs::write(&next, manifest).unwrap();
    fs::rename(&next, folder.join("model.toml")).unwrap();
}

/// Waits until Prometheus is told of something; frames come meanwhile.
fn wait(capture: &mut Capture, what: &str) -> BTreeMap<String, u64> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let told = capture.feed();
        if told.get(what).is_some_and(|value| *value > 0) {
            return told;
        }
        assert!(Instant::now() < deadline, "{what}: {told:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn of_action(action: &str) -> String {
    format!("lowroad_features_model_packets_total{{action=\"{action}\"}}")
}

#[test]
fn another_model_is_in_force_once_its_file_is_replaced_and_a_broken_one_never_is() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "first", "action = \"mark\", dscp = 8");
    let (path, model) = (folder.path().to_owned(), folder.path().join("model.toml"));
    let model = model.to_str().unwrap();
    // Flows end soon, and the next ones meet the model anew.
    let arguments = [
        "--datapath",
        "xdp-flow",
        "--schema",
        "tree.v1",
        "--idle-timeout",
        "100ms",
        "--model",
        model,
        "--score",
        model,
    ];
    let mut capture = Capture::start_in(folder, "live-models", &arguments);
    let told = wait(
        &mut capture,
        "lowroad_features_model_flows_total{class=\"first\"}",
    );
    assert!(told[&of_action("mark")] >= FRAMES, "{told:?}");
    assert_eq!(told[&of_action("drop")], 0, "{told:?}");
    assert_eq!(told["lowroad_features_unscored_rows_total"], 0, "{told:?}");

    rename(&path, "name = \"broken\"\n");
    put_and_see(&mut capture, &path);
    capture.signal(Signal::SIGINT);
    let output = capture.end();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let account = account(&output);
    let told = &account["model"];
    assert_eq!(
        (&told["name"], &told["replaced"]),
        (&"second".into(), &1.into()),
        "{account}"
    );
    for class in ["first", "second"] {
        assert!(told["flows"][class].as_u64() >= Some(FLOWS), "{account}");
    }
    assert!(told["packets"]["drop"].as_u64() > Some(0), "{account}");
    assert!(said.contains("first stays in force"), "{said}");
    rows_say_whose_they_are(&fs::read_to_string(path.join("flows.csv")).unwrap());
}

/// Each row is of a flow that can be found again, and has the class of the model that was in force.
fn rows_say_whose_they_are(rows: &str) {
    let mut lines = rows.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let lines: Vec<_> = lines.collect();
    let column = |name: &str| {
        let at = header.iter().position(|column| *column == name);
        let at = at.unwrap_or_else(|| panic!("{name}: {header:?}"));
        lines.iter().map(move |line| line[at])
    };
    let ids: BTreeSet<&str> = column("flow_id").collect();
    assert_eq!(ids.len(), lines.len(), "{rows}");
    for name in ["src_ip", "dst_ip", "first_seen", "last_seen", "class"] {
        assert!(
            column(name).all(|value| !value.is_empty()),
            "{name}: {rows}"
        );
    }
    let said = column("kernel_class").zip(column("kernel_action"));
    let said: BTreeSet<(&str, &str)> = said.filter(|(class, _)| !class.is_empty()).collect();
    assert_eq!(
        said,
        BTreeSet::from([("first", "mark"), ("second", "drop")])
    );
}

/// After a broken model, one that drops.
fn put_and_see(capture: &mut Capture, path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !capture.warned().contains("first stays in force") {
        assert!(Instant::now() < deadline, "{}", capture.warned());
        let told = capture.feed();
        assert_eq!(told[&of_action("drop")], 0, "{told:?}");
    }
    put(path, "second", "action = \"drop\"");
    let told = wait(capture, &of_action("drop"));
    assert!(told["lowroad_features_model_flows_total{class=\"second\"}"] > 0);
    assert!(told["lowroad_features_model_flows_total{class=\"first\"}"] >= FLOWS);
}
