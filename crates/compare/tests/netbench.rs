//! Experiments of netbench in the small: every link, placement and tool says the same things.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;
#[path = "../../testbed/tests/engines/daemon.rs"]
mod daemon;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{alone, lowroad, path, record, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};

/// One short block of the shipped experiment's loads, of these arms or of all; `None` where this cannot be run.
fn block(name: &str, arms: &str, attempts: &str) -> Option<Vec<Value>> {
    if !sys::require::root() {
        return None;
    }
    let own = Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad");
    if !own.is_file() {
        skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = std::fs::read_to_string(shipped.join(format!("{name}.toml"))).unwrap();
    let (text, _quick) = text.split_once("[quick]").unwrap();
    let text = ["200ms", "500ms"]
        .iter()
        .fold(text.to_owned(), |text, long| {
            text.replace(&format!("duration = \"{long}\""), "duration = \"300ms\"")
        });
    let plan = folder.path().join("small.toml");
    std::fs::write(&plan, text).unwrap();
    let out = folder.path().join("out");
    succeeded(&alone(|| {
        let mut command = lowroad(&["compare", path(&plan), "--blocks", "1", "--seed", "5"]);
        command.args(["--attempts", attempts]);
        if !arms.is_empty() {
            command.args(["--arms", arms]);
        }
        command.arg("--out").arg(&out).output().unwrap()
    }));
    let record = record(&out);
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    // Of a trial that others disturbed nothing is drawn.
    let drawn = record.iter().any(|line| {
        let clean = line["flags"] == Value::Array(Vec::new());
        // The baseline's repeats are no arms of their own there.
        clean && line["repeat"] == 0 && line["histograms"]["rtt"].is_object()
    });
    let round_trips = report.contains("share of transactions");
    assert_eq!(round_trips, drawn, "{}", out.display());
    Some(record)
}

/// The metrics that a load's trials have, each above 0.
fn expected(load: &str) -> Vec<String> {
    let (_, test) = load.rsplit_once("test=").unwrap();
    match (load.starts_with("cpu"), test) {
        (true, "tcp_stream") => vec!["cpu_s_per_gbit".to_owned()],
        (true, _) => vec!["cpu_ns_per_transaction".to_owned()],
        (false, "tcp_stream" | "udp_stream" | "udp_rate") => vec![format!("{test}_mbps")],
        (false, _) => vec![format!("{test}_us_p50"), "transactions_per_s".to_owned()],
    }
}

/// Every trial has what its load is measured by, and nothing failed. Returns each arm's loads.
fn check(record: &[Value]) -> BTreeSet<(String, String)> {
    let mut ran = BTreeSet::new();
    for trial in &record[1..] {
        let load = trial["load"].as_str().unwrap();
        let flags = trial["flags"].to_string();
        // On a busy machine there may be no rate without loss.
        if load.contains("udp_rate") && flags.contains("failed") {
            continue;
        }
        assert!(!flags.contains("failed"), "{trial}");
        let values = trial["values"].as_object().unwrap();
        for metric in expected(load) {
            let value = values[&metric].as_f64();
            // CPU time is a difference of two windows: beside others, whom the flags name, it may be below 0.
            let beside_others = load.starts_with("cpu") && flags != "[]";
            let measured = value > Some(0.0) || (beside_others && value.is_some());
            assert!(measured, "{metric}: {trial}");
        }
        let arm = trial["arm"].as_str().unwrap();
        let own = !["iperf3", "sockperf", "netperf"].contains(&arm);
        if own && load.contains("rr") && !load.starts_with("cpu") {
            assert!(trial["histograms"]["rtt"].is_object(), "{trial}");
            // Of few transactions there is none.
            let times = |share: &str| values.iter().find(|(name, _)| name.ends_with(share));
            if let Some((_, p99)) = times("_us_p99") {
                assert!(times("_us_p50").unwrap().1.as_f64() <= p99.as_f64());
            }
        }
        ran.insert((arm.to_owned(), load.to_owned()));
    }
    ran
}

#[test]
fn every_link_is_measured_by_every_test() {
    let Some(record) = block(
        "netbench-matrix",
        "native/direct,native/bridge,native/macvlan,oci/direct,oci/bridge",
        "1",
    ) else {
        return;
    };
    let ran = check(&record);
    let mut arms = vec!["native/direct", "native/bridge", "native/macvlan"];
    let header = record[0]["skipped"].to_string();
    match header.contains("runc is not installed") {
        true => skip(Class::OptIn, "runc is not installed: apt-get install runc"),
        false => arms.extend(["oci/direct", "oci/bridge"]),
    }
    for trial in &record[1..] {
        let arm = trial["arm"].as_str().unwrap();
        let env = if arm.starts_with("oci") {
            "oci"
        } else {
            "native"
        };
        let environment = &trial["environment"];
        assert_eq!(environment["host.server.env"], env, "{trial}");
        assert_eq!(environment["host.client.env"], "native", "{trial}");
        let up = environment["host.server.up_us"].as_u64();
        assert_eq!(up > Some(0), env == "oci", "{trial}");
    }
    for arm in arms {
        for load in ["test=tcp_rr", "test=tcp_stream", "rate=1000 test=icmp"] {
            assert!(ran.contains(&(arm.into(), load.into())), "{arm} {load}");
        }
    }
}

#[test]
fn containers_of_an_engine_are_measured_over_both_of_their_links() {
    let test = "containers_of_an_engine_are_measured_over_both_of_their_links";
    daemon::with_docker(test, || {
        let Some(record) = block(
            "netbench-matrix",
            "native/direct,docker/direct,docker/bridge",
            "1",
        ) else {
            return;
        };
        let ran = check(&record);
        for arm in ["docker/direct", "docker/bridge"] {
            for load in ["test=tcp_rr", "test=udp_rr", "test=tcp_stream"] {
                assert!(ran.contains(&(arm.into(), load.into())), "{arm} {load}");
            }
        }
        // An echo request has no port that could be published.
        let echo = "rate=1000 test=icmp".to_owned();
        assert!(ran.contains(&("docker/direct".into(), echo.clone())));
        assert!(!ran.contains(&("docker/bridge".into(), echo)));
        let mut started = BTreeSet::new();
        for trial in record[1..]
            .iter()
            .filter(|trial| trial["arm"] == "docker/direct")
        {
            let environment = &trial["environment"];
            assert_eq!(environment["host.server.env"], "docker", "{trial}");
            assert!(environment["host.server.engine"].is_string(), "{trial}");
            started.insert(environment["host.server.up_us"].to_string());
        }
        assert_eq!(started.len(), 1, "one start: {started:?}");
    });
}

/// These arms ran, each under every load that its baseline ran under, but for those that this machine is said to lack.
fn ran_or_skipped(record: &[Value], arms: &str) -> Vec<String> {
    let ran = check(record);
    let skipped = record[0]["skipped"].as_array().unwrap();
    let is_skipped = |arm: &str| skipped.iter().any(|skip| skip["arm"] == arm);
    let (lacking, there): (Vec<&str>, Vec<&str>) = arms.split(',').partition(|arm| is_skipped(arm));
    for arm in &there {
        for load in ["test=tcp_rr", "test=udp_rr", "test=tcp_stream"] {
            assert!(ran.contains(&((*arm).into(), load.into())), "{arm} {load}");
        }
    }
    for arm in lacking {
        skip(Class::Hardware, &format!("this machine cannot run {arm}"));
    }
    there.into_iter().map(str::to_owned).collect()
}

#[test]
fn tuning_is_tried_by_itself() {
    let arms = "native/direct,native/direct+unpinned,native/direct+busy-poll,native/direct+real-time,\
                native/direct+isolated";
    let Some(record) = block("netbench-tuning", arms, "1") else {
        return;
    };
    let there = ran_or_skipped(&record, arms);
    assert!(there.iter().any(|arm| arm == "native/direct+unpinned"));
}

#[test]
fn virtual_machines_are_measured_and_say_whether_they_are_emulated() {
    if !sys::require::requested("boots virtual machines") {
        return;
    }
    let arms = "native/direct,vm/direct,vm/bridge,vm-rt/direct,vm-oci/direct";
    let Some(record) = block("netbench-matrix", arms, "1") else {
        return;
    };
    let there = ran_or_skipped(&record, arms);
    for trial in &record[1..] {
        let facts = trial["environment"].as_object().unwrap();
        let said: Vec<_> = facts
            .iter()
            .filter(|(name, _)| name.ends_with(".emulated"))
            .collect();
        let guest = trial["arm"].as_str().unwrap().starts_with("vm");
        assert_eq!(said.is_empty(), !guest, "{trial}");
        assert!(said.iter().all(|(_, value)| value.is_boolean()), "{trial}");
    }
    assert!(
        there.len() > 1 || cfg!(not(target_arch = "x86_64")),
        "{there:?}"
    );
}

#[test]
fn containers_of_podman_are_measured() {
    if !sys::require::requested("starts containers of podman") {
        return;
    }
    let listed = || {
        let words = [["ps", "--all", "--quiet"], ["images", "--all", "--quiet"]];
        words.map(|words| Command::new("podman").args(words).output().ok())
    };
    let before = listed();
    let arms = "native/direct,podman/direct";
    let Some(record) = block("netbench-matrix", arms, "1") else {
        return;
    };
    let there = ran_or_skipped(&record, arms);
    let mut trials = record[1..].iter();
    let ran = trials.any(|trial| trial["environment"]["host.server.env"] == "podman");
    assert_eq!(ran, there.len() > 1, "{there:?}");
    assert_eq!(listed(), before, "a container or an image stays");
}

#[test]
fn a_cell_that_cannot_run_is_a_row_with_its_reason_and_remedy() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let words = [
        "compare",
        "netbench-matrix",
        "--quick",
        "--arms",
        "native/direct,oci/direct,docker/direct,vm/direct",
        "--blocks",
        "1",
        "--json",
    ];
    let output = alone(|| {
        // Where nothing is installed.
        let mut command = lowroad(&words);
        command.env("PATH", folder.path());
        command.arg("--out").arg(&out).output().unwrap()
    });
    succeeded(&output);
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let summary: Value = serde_json::from_str(&text).unwrap();
    let rows = summary["results"].as_array().unwrap();
    for (arm, what, remedy) in [
        (
            "oci/direct",
            "runc is not installed",
            "apt-get install runc",
        ),
        (
            "docker/direct",
            "docker is not installed",
            "apt-get install docker.io && systemctl start docker",
        ),
        (
            "vm/direct",
            "need qemu-system-x86_64",
            "apt-get install qemu-system-x86",
        ),
    ] {
        let row = rows.iter().find(|row| row["arm"] == arm);
        let row = row.unwrap_or_else(|| panic!("{arm}: {summary}"));
        assert_eq!(row["verdict"], "skipped", "{row}");
        assert!(row.to_string().contains(what), "{row}");
        assert_eq!(row["remedy"], remedy, "{row}");
        assert!(report.contains(what), "{report}");
    }
    // As the page writes it.
    for remedy in [
        "apt-get install runc",
        "apt-get install docker.io &amp;&amp; systemctl start docker",
    ] {
        assert!(report.contains(remedy), "{remedy}: {report}");
    }
}

#[test]
fn sizes_flows_and_streams_of_datagrams_are_offered_as_they_are_asked_for() {
    let Some(record) = block("netbench-sizes", "native/direct", "1") else {
        return;
    };
    let ran = check(&record);
    for load in [
        "size=16384 test=tcp_rr",
        "size=256 test=tcp_stream",
        "flows=4 test=tcp_stream",
        "rate=20000 test=udp_stream",
    ] {
        assert!(
            ran.contains(&("native/direct".into(), load.into())),
            "{load}"
        );
    }
    for trial in &record[1..] {
        let load = trial["load"].as_str().unwrap();
        let number = |name: &str| trial["environment"]["near"][name].as_f64().unwrap();
        let per_message = number("all_bytes") / number("all_messages");
        match load {
            "size=16384 test=tcp_rr" => {
                assert!((per_message / 16384.0 - 1.0).abs() < 0.02, "{trial}");
            }
            "rate=20000 test=udp_stream" => {
                assert!((per_message - 1472.0).abs() < 1.0, "{trial}");
                let lost = trial["values"]["udp_stream_loss_pct"].as_f64().unwrap();
                assert!((0.0..=100.0).contains(&lost), "{trial}");
                // What is sent is what was asked for, or the trial is flagged for less.
                let mbps = trial["values"]["udp_stream_mbps"].as_f64().unwrap();
                assert!(mbps < 300.0, "{trial}");
            }
            _ => {}
        }
    }
}

#[test]
fn every_placement_is_measured() {
    let Some(record) = block("netbench-placement", "", "1") else {
        return;
    };
    let arms: BTreeSet<_> = check(&record).into_iter().map(|(arm, _)| arm).collect();
    let all = ["other-cpu", "other-cpu-awake", "same-cpu", "unpinned"];
    assert_eq!(arms, all.map(str::to_owned).into());
}

#[test]
fn tools_that_are_here_say_what_ours_does() {
    let Some(record) = block("netbench-calibration", "", "1") else {
        return;
    };
    let ran = check(&record);
    let header = record[0]["skipped"].to_string();
    for (arm, load) in [
        ("iperf3", "size=131072 test=tcp_stream"),
        ("sockperf", "size=14 test=tcp_rr"),
        ("sockperf", "size=14 test=udp_rr"),
    ] {
        if header.contains(&format!("{arm} is not installed")) {
            skip(
                Class::OptIn,
                &format!("{arm} is not installed: apt-get install {arm}"),
            );
        } else {
            assert!(
                ran.contains(&(arm.into(), load.into())),
                "{arm} {load}: {header}"
            );
        }
    }
}

#[test]
fn every_trial_beside_a_busy_process_is_flagged_for_it() {
    let Some(record) = block("netbench-neighbour", "", "3") else {
        return;
    };
    check(&record);
    let (beside, alone): (Vec<_>, Vec<_>) = record[1..]
        .iter()
        .partition(|trial| trial["arm"] == "neighbour");
    let flags = |trial: &Value| trial["flags"].to_string();
    // Three loads; to try again helps nobody whom the neighbour waits for.
    assert_eq!(beside.len(), 3 * 3, "{beside:?}");
    for trial in &beside {
        assert!(flags(trial).contains("foreign CPU"), "{trial}");
    }
    // Others may be busy beside those: not one of the neighbours.
    for trial in &alone {
        for other in &beside {
            let process = format!("({})", other["environment"]["neighbour.pid"]);
            assert!(!flags(trial).contains(&process), "{trial}");
        }
    }
}
