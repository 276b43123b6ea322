//! Experiments of netbench in the small: every link, placement and tool says the same things.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{alone, lowroad, path, program, record, shipped, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};
use test_support::{daemon, test_path};

/// Runs one short block of a shipped experiment. Without loads or arms it has all of them. `None` where it cannot run.
fn block(name: &str, loads: &[usize], arms: &str) -> Option<Vec<Value>> {
    // In a shorter window the noise of the CPU account exceeds the cost.
    let brief = |load: &str| match load.contains("measure = \"cpu\"") {
        true => "200ms",
        false => "100ms",
    };
    block_of(&shipped(name, loads, brief), arms)
}

/// Runs one block of the experiment that `text` describes. Without arms it has all of them.
fn block_of(text: &str, arms: &str) -> Option<Vec<Value>> {
    if !sys::require::root() {
        return None;
    }
    program()?;
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("small.toml");
    std::fs::write(&plan, text).unwrap();
    let out = folder.path().join("out");
    succeeded(&alone(|| {
        let mut command = lowroad(&["compare", path(&plan), "--blocks", "1", "--seed", "5"]);
        if !arms.is_empty() {
            command.args(["--arms", arms]);
        }
        command.arg("--out").arg(&out).output().unwrap()
    }));
    let record = record(&out);
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    // The baseline's repeats are not separate arms there.
    let drawn = record
        .iter()
        .any(|line| line["repeat"] == 0 && line["histograms"]["rtt"].is_object());
    let round_trips = report.contains("share of transactions");
    assert_eq!(round_trips, drawn, "{}", out.display());
    Some(record)
}

/// The metrics that a load's trials have, each above 0.
fn expected(load: &str) -> Vec<String> {
    let (_, test) = load.rsplit_once("test=").unwrap();
    // A path comes after it.
    let test = test.split(' ').next().unwrap();
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
        let arm = trial["arm"].as_str().unwrap();
        // ping waits between its requests.
        let measures = |metric: &String| arm != "ping" || metric != "transactions_per_s";
        for metric in expected(load).into_iter().filter(measures) {
            let value = values[&metric].as_f64();
            // CPU time is a difference of two windows: beside others, whom the flags name, it may be below 0.
            let beside_others = load.starts_with("cpu") && flags != "[]";
            let measured = value > Some(0.0) || (beside_others && value.is_some());
            assert!(measured, "{metric}: {trial}");
        }
        let own = !["iperf3", "sockperf", "netperf", "nuttcp", "ping"].contains(&arm);
        if own && load.contains("rr") && !load.starts_with("cpu") {
            assert!(trial["histograms"]["rtt"].is_object(), "{trial}");
            // A few transactions have no such percentile.
            let times = |share: &str| values.iter().find(|(name, _)| name.ends_with(share));
            if let Some((_, p99)) = times("_us_p99") {
                assert!(times("_us_p50").unwrap().1.as_f64() <= p99.as_f64());
            }
        }
        ran.insert((arm.to_owned(), load.to_owned()));
    }
    ran
}

/// Runs the matrix over each link under `loads`, and requires the loads of these names.
fn links_are_measured(loads: &[usize], named: &[&str]) {
    let Some(record) = block(
        "netbench-matrix",
        loads,
        "native/direct,native/bridge,native/macvlan,oci/direct,oci/bridge",
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
        for load in named {
            let cell = (arm.to_owned(), (*load).to_owned());
            assert!(ran.contains(&cell), "{arm} {load}");
        }
    }
}

#[test]
fn every_link_is_measured() {
    links_are_measured(&[0, 4], &["test=tcp_rr", "rate=1000 test=icmp"]);
}

#[test]
#[ignore = "every test over every link"]
fn every_link_is_measured_by_every_test() {
    links_are_measured(
        &[],
        &["test=tcp_rr", "test=tcp_stream", "rate=1000 test=icmp"],
    );
}

#[test]
fn rate_search_and_cpu_are_measured() {
    for (experiment, loads, cpu) in [
        ("netbench-matrix", &[3, 5][..], "cpu test=tcp_rr"),
        ("netbench-tuning", &[3], "cpu test=tcp_stream"),
    ] {
        if let Some(record) = block(experiment, loads, "native/direct") {
            let ran = check(&record);
            let cell = ("native/direct".to_owned(), cpu.to_owned());
            assert!(ran.contains(&cell), "{ran:?}");
        }
    }
}

#[test]
fn engine_containers_run_over_both_links() {
    let test = "engine_containers_run_over_both_links";
    daemon::with_docker(&test_path(module_path!(), test), || {
        let Some(record) = block(
            "netbench-matrix",
            &[],
            "native/direct,docker/direct,docker/bridge",
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

/// Loads that apply to every arm.
const EVERYWHERE: [&str; 3] = ["test=tcp_rr", "test=udp_rr", "test=tcp_stream"];

/// These arms ran, each under these loads that its baseline ran under, but for those that this machine is said to lack.
fn ran_or_skipped(record: &[Value], arms: &str, loads: &[&str]) -> Vec<String> {
    let ran = check(record);
    let skipped = record[0]["skipped"].as_array().unwrap();
    let is_skipped = |arm: &str| skipped.iter().any(|skip| skip["arm"] == arm);
    let (lacking, there): (Vec<&str>, Vec<&str>) = arms.split(',').partition(|arm| is_skipped(arm));
    for arm in &there {
        for load in loads {
            let cell = ((*arm).to_owned(), (*load).to_owned());
            assert!(ran.contains(&cell), "{arm} {load}");
        }
    }
    for arm in lacking {
        skip(Class::Hardware, &format!("this machine cannot run {arm}"));
    }
    there.into_iter().map(str::to_owned).collect()
}

/// Runs each tuning of this machine under `loads`, and requires the loads of these names.
fn tunings_are_measured(loads: &[usize], named: &[&str]) {
    let arms = "native/direct,native/direct+unpinned,native/direct+busy-poll,native/direct+real-time,\
                native/direct+isolated";
    let Some(record) = block("netbench-tuning", loads, arms) else {
        return;
    };
    let there = ran_or_skipped(&record, arms, named);
    assert!(there.iter().any(|arm| arm == "native/direct+unpinned"));
}

#[test]
fn every_tuning_is_measured() {
    tunings_are_measured(&[1], &["test=udp_rr"]);
}

#[test]
#[ignore = "every tuning under every load"]
fn tuning_is_tried_by_itself() {
    tunings_are_measured(&[], &EVERYWHERE);
}

#[test]
fn virtual_machines_report_emulation() {
    if !sys::require::requested("boots virtual machines") {
        return;
    }
    let arms = "native/direct,vm/direct,vm/bridge,vm-rt/direct,vm-oci/direct";
    let Some(record) = block("netbench-matrix", &[], arms) else {
        return;
    };
    let there = ran_or_skipped(&record, arms, &EVERYWHERE);
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
    let Some(record) = block("netbench-matrix", &[], arms) else {
        return;
    };
    let there = ran_or_skipped(&record, arms, &EVERYWHERE);
    let mut trials = record[1..].iter();
    let ran = trials.any(|trial| trial["environment"]["host.server.env"] == "podman");
    assert_eq!(ran, there.len() > 1, "{there:?}");
    assert_eq!(listed(), before, "a container or an image stays");
}

/// Runs `loads`, requires those of these names, and compares what is sent with what they ask for.
fn loads_are_offered(loads: &[usize], named: &[&str]) {
    let Some(record) = block("netbench-sizes", loads, "native/direct") else {
        return;
    };
    let ran = check(&record);
    for load in named {
        let cell = ("native/direct".to_owned(), (*load).to_owned());
        assert!(ran.contains(&cell), "{load}");
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
                // The sender reaches the rate, or the trial is flagged.
                let mbps = trial["values"]["udp_stream_mbps"].as_f64().unwrap();
                assert!(mbps < 300.0, "{trial}");
            }
            _ => {}
        }
    }
}

#[test]
fn sizes_flows_and_datagrams_are_offered() {
    loads_are_offered(
        &[2, 5, 6],
        &[
            "size=16384 test=tcp_rr",
            "flows=4 test=tcp_stream",
            "rate=20000 test=udp_stream",
        ],
    );
}

#[test]
#[ignore = "every size"]
fn offered_load_matches_options() {
    loads_are_offered(
        &[],
        &[
            "size=16384 test=tcp_rr",
            "size=256 test=tcp_stream",
            "flows=4 test=tcp_stream",
            "rate=20000 test=udp_stream",
        ],
    );
}

/// Runs each placement under these loads.
fn placements_are_measured(loads: &[usize]) {
    let Some(record) = block("netbench-placement", loads, "") else {
        return;
    };
    let arms: BTreeSet<_> = check(&record).into_iter().map(|(arm, _)| arm).collect();
    let all = ["other-cpu", "other-cpu-awake", "same-cpu", "unpinned"];
    assert_eq!(arms, all.map(str::to_owned).into());
}

#[test]
fn every_placement_has_round_trips() {
    placements_are_measured(&[0]);
}

#[test]
#[ignore = "every placement under every load"]
fn every_placement_is_measured() {
    placements_are_measured(&[]);
}

#[test]
fn tools_that_are_here_say_what_ours_does() {
    // Some of them measure whole seconds only.
    let there = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    let tools = ["iperf3", "sockperf", "netperf"];
    let (loads, duration): (&[usize], _) = match tools.iter().any(there) {
        true => (&[], "1s"),
        false => (&[0], "100ms"),
    };
    let text = shipped("netbench-calibration", loads, |_| duration);
    let Some(record) = block_of(&text, "") else {
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

/// Each trial beside a busy process is flagged for that process, and no other trial is.
fn neighbours_are_flagged(loads: &[usize]) {
    let text = shipped("netbench-neighbour", loads, |_| "300ms");
    let Some(record) = block_of(&text, "") else {
        return;
    };
    check(&record);
    let (beside, alone): (Vec<_>, Vec<_>) = record[1..]
        .iter()
        .partition(|trial| trial["arm"] == "neighbour");
    let flags = |trial: &Value| trial["flags"].to_string();
    assert_eq!(beside.len(), loads.len(), "{beside:?}");
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

#[test]
fn trials_beside_busy_process_are_flagged() {
    neighbours_are_flagged(&[0]);
}

#[test]
#[ignore = "every load of the experiment"]
fn busy_neighbour_flags_every_trial() {
    neighbours_are_flagged(&[0, 1, 2]);
}

#[test]
fn paths_have_their_capacity_and_delay() {
    let text = shipped("netbench-path", &[0, 2, 5], |_| "500ms");
    let Some(record) = block_of(&text, "lowroad") else {
        return;
    };
    check(&record);
    let value = |trial: &Value, metric: &str| trial["values"][metric].as_f64().unwrap();
    for trial in &record[1..] {
        let load = trial["load"].as_str().unwrap();
        if load.contains("icmp") {
            assert!(value(trial, "icmp_us_p50") >= 40_000.0, "{trial}");
        } else {
            // 9.6 of them are payload. What waited for the thread of the path comes a little later, all at once.
            let metric = expected(load).remove(0);
            assert!(value(trial, &metric) < 12.0, "{trial}");
        }
        if load.contains("udp_stream") {
            // Twice the capacity is offered.
            assert!(value(trial, "udp_stream_loss_pct") > 25.0, "{trial}");
        }
    }
    assert_eq!(record.len(), 1 + 3 * 3);
}

#[test]
#[ignore = "needs iperf3, nuttcp and sockperf"]
fn other_tools_are_measured_on_the_same_paths() {
    let text = shipped("netbench-path", &[], |_| "1s");
    let Some(record) = block_of(&text, "") else {
        return;
    };
    let ran = check(&record);
    for (arm, load) in [
        (
            "iperf3",
            "rate=2000 size=1250 test=udp_stream capacity=10mbps",
        ),
        ("nuttcp", "size=131072 test=tcp_stream capacity=500mbps"),
        ("sockperf", "size=14 test=udp_rr delay=20ms"),
        ("ping", "test=icmp delay=20ms"),
    ] {
        let cell = (arm.to_owned(), load.to_owned());
        assert!(ran.contains(&cell), "{arm} {load}");
    }
}
