//! Jobs whose device under test is in a container or a virtual machine: the same experiment, the same
//! program, and a record that says where it ran; and why others cannot be there.

use std::process::Output;

use crate::common::{ONE_BLOCK, alone, lowroad, path, program, record, stderr, stdout, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};
use test_support::{daemon, test_path};

const RELAY: &str = r#"
name = "relay-placed"
job = "relay"
about = "A relay in a container"
measure = "delay"
baseline = "recv"
arms = ["recv", "tc", "xdp", "floor", "socat"]
blocks = 6
primary = ["delay_p50"]

[[load]]
payload = "200B"
rate = "5kpps"
subscribers = 1
duration = "200ms"
"#;

const FEATURES: &str = r#"
name = "features-placed"
job = "features"
about = "A capture in a virtual machine"
measure = "goodput"
environment = "vm"
baseline = "recv"
arms = ["recv", "xdp-flow", "floor"]
blocks = 6
primary = ["goodput_pps"]

[[load]]
flows = 4
rate = "1kpps"
duration = "200ms"

[[load]]
measure = "cpu"
flows = 4
rate = "1kpps"
duration = "200ms"

[[load]]
measure = "row-latency"
flows = 4
rate = "1kpps"
duration = "200ms"
"#;

/// Whether programs are placed here; reports the skip when not.
fn present(environment: &str) -> bool {
    if !sys::require::root() {
        return false;
    }
    if program().is_none() {
        return false;
    }
    let missing = (testbed::Kind::find(environment).unwrap().probe)().err();
    if let Some(missing) = &missing {
        skip(
            Class::Core,
            &format!("{}; {}", missing.what, missing.remedy),
        );
    }
    missing.is_none()
}

/// One block of the experiment: its record and its summary.
fn block(text: &str, words: &[&str]) -> (Vec<Value>, Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let (plan, out) = (folder.path().join("plan.toml"), folder.path().join("out"));
    std::fs::write(&plan, text).unwrap();
    let output = alone(|| {
        let mut command = lowroad(&["compare", path(&plan), "--json"]);
        command.args(ONE_BLOCK).args(words);
        command.arg("--out").arg(&out).output().unwrap()
    });
    succeeded(&output);
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    let summary = serde_json::from_str(&stdout(&output)).unwrap();
    (record(&out), summary, report)
}

/// The trials of an arm, none of which failed.
fn trials<'a>(record: &'a [Value], arm: &str) -> Vec<&'a Value> {
    let trials: Vec<_> = record[1..]
        .iter()
        .filter(|trial| trial["arm"] == arm)
        .collect();
    assert!(!trials.is_empty(), "{arm}: {}", record[0]);
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
    }
    trials
}

#[test]
fn a_relay_runs_in_a_container() {
    if !present("oci") {
        return;
    }
    let (record, _, report) = block(RELAY, &["--environment", "oci"]);
    let header = &record[0];
    assert_eq!(header["environment"], "oci");
    assert!(
        header["command"]
            .as_str()
            .unwrap()
            .contains("--environment oci")
    );
    assert!(report.contains("ran in oci"));
    for arm in ["recv", "tc", "xdp"] {
        for trial in trials(&record, arm) {
            let facts = &trial["environment"];
            assert_eq!(facts["host.relay.env"], "oci", "{arm}");
            assert!(facts["host.relay.up_us"].as_u64() > Some(0), "{arm}");
            assert_eq!(facts["host.relay.kernel"], header["machine"]["kernel"]);
            assert_eq!(facts["host.receiver.env"], "native", "{arm}");
            assert!(trial["values"]["delay_p50"].as_f64() > Some(0.0), "{trial}");
            assert!(trial["counts"]["unique"].as_u64() > Some(0), "{trial}");
            let flags = trial["flags"].to_string();
            assert!(!flags.contains("counted where dropped"), "{trial}");
            assert_eq!(facts["relay"][0]["datapath"], arm, "{trial}");
        }
    }
    // Nothing is in the middle, and nothing is placed.
    let bare = trials(&record, "floor")[0];
    assert!(bare["environment"]["host.relay.env"].is_null());
    assert!(header["skipped"].to_string().contains("this machine alone"));
}

/// Runs the experiment, and checks that record and report say that the capture is in a virtual machine.
fn capture_is_in_a_virtual_machine(experiment: &str) {
    if !present("vm") {
        return;
    }
    let (record, summary, report) = block(experiment, &[]);
    let header = &record[0];
    assert_eq!(header["environment"], "vm");
    for arm in ["recv", "xdp-flow"] {
        for trial in trials(&record, arm) {
            let facts = &trial["environment"];
            assert_eq!(facts["host.tap.env"], "vm", "{arm}");
            let kernel = facts["host.tap.kernel"].as_str().unwrap();
            assert!(
                kernel.starts_with("6.1.") && kernel.contains("cloud"),
                "{kernel}"
            );
            let emulated = match facts["host.tap.accelerator"].as_str().unwrap() {
                "kvm" => false,
                "tcg" => true,
                other => panic!("{other}"),
            };
            assert_eq!(facts["host.tap.emulated"], emulated);
            assert_eq!(report.contains("EMULATED"), emulated);
            assert!(trial["counts"]["unique"].as_u64() > Some(0), "{trial}");
            let flags = trial["flags"].to_string();
            assert!(!flags.contains("counted where dropped"), "{trial}");
            assert!(trial["values"]["memory_mib"].is_null(), "it is the guest's");
            let rows = summary["results"].as_array().unwrap().iter();
            let mut own = rows.filter(|row| row["arm"] == "xdp-flow" && row["reason"].is_null());
            assert!(
                own.all(|row| !emulated || row["verdict"] == "emulated"),
                "{summary}"
            );
        }
    }
    let skipped = header["skipped"].to_string();
    for why in ["loaded from outside", "the two clocks cannot be compared"] {
        assert!(skipped.contains(why), "{skipped}");
    }
}

#[test]
fn capture_cost_is_measured_in_virtual_machine() {
    let (head, loads) = FEATURES.split_once("[[load]]").unwrap();
    let (_goodput, others) = loads.split_once("[[load]]").unwrap();
    capture_is_in_a_virtual_machine(&format!("{head}[[load]]{others}"));
}

#[test]
#[ignore = "what it takes in as well"]
fn a_capture_runs_in_a_virtual_machine() {
    capture_is_in_a_virtual_machine(FEATURES);
}

#[test]
fn a_relay_runs_in_every_environment() {
    if !sys::require::requested("places a relay in docker, podman, and virtual machines") {
        return;
    }
    let test = "a_relay_runs_in_every_environment";
    daemon::with_docker(&test_path(module_path!(), test), || {
        for environment in ["docker", "podman", "vm", "vm-rt"] {
            let kind = testbed::Kind::find(environment).unwrap();
            if let Err(missing) = (kind.probe)() {
                let reason = format!("{}; {}", missing.what, missing.remedy);
                skip(Class::Hardware, &reason);
                continue;
            }
            let words = ["--environment", environment, "--arms", "recv,floor"];
            let (record, _, _) = block(RELAY, &words);
            assert_eq!(record[0]["environment"], environment);
            for trial in trials(&record, "recv") {
                let facts = &trial["environment"];
                assert_eq!(facts["host.relay.env"], environment, "{trial}");
                assert_eq!(facts["host.receiver.env"], "native", "{trial}");
                assert!(trial["counts"]["unique"].as_u64() > Some(0), "{trial}");
            }
        }
    });
}

fn refused(words: &[&str], code: i32) -> Output {
    let output = alone(|| lowroad(words).output().unwrap());
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    output
}

#[test]
fn unplaceable_arms_are_refused() {
    if !present("oci") {
        return;
    }
    for (experiment, why) in [
        ("netbench-matrix", "arms are environments themselves"),
        ("replicate-lag", "runs on no host of a test bed"),
        ("router-lpm4", "processes of no host"),
        ("features-pcap-peers", "runs on no host"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let words = ["compare", experiment, "--quick", "--environment", "oci"];
        let said = stderr(&refused(&[&words[..], &["--out", path(&out)]].concat(), 3));
        assert!(
            said.contains(why) && said.contains("leave the environment out"),
            "{said}"
        );
        assert!(!out.join("record.jsonl").exists(), "{experiment}");
    }
    let words = [
        "compare",
        "relay-delay",
        "--environment",
        "moon",
        "--dry-run",
    ];
    let said = stderr(&refused(&words, 2));
    assert!(
        said.contains("\"moon\"") && said.contains("native, oci, ") && said.contains("vm-rt"),
        "{said}"
    );
}
