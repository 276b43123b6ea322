//! Experiments, most of them those that ship, in the small and for real: what they record must make
//! sense.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;

use std::path::Path;

use common::{ONE_BLOCK, alone, lowroad, record, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};

/// The trials of one block at `--quick`, or of the named arms, after the header; `None` where this
/// cannot be run.
fn block(experiment: &str, arms: &[&str]) -> Option<Vec<Value>> {
    if !sys::require::root() {
        return None;
    }
    let relay = Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad");
    if !relay.is_file() {
        skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut words = vec!["compare", experiment];
    words.extend(ONE_BLOCK);
    let arms = arms.join(",");
    words.extend(if arms.is_empty() {
        vec!["--quick"]
    } else {
        vec!["--arms", &arms]
    });
    let out = folder.path().join("out");
    succeeded(&alone(|| {
        lowroad(&words).arg("--out").arg(&out).output().unwrap()
    }));
    let summary = std::fs::read_to_string(out.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let record = record(&out);
    assert_eq!(summary["experiment"], record[0]["experiment"]);
    Some(record)
}

/// The trials of a record, each of which delivered what was sent.
fn trials(mut record: Vec<Value>) -> Vec<Value> {
    let trials = record.split_off(1);
    for trial in &trials {
        let sent = trial["counts"]["sent"].as_u64();
        assert!(sent > Some(0) && trial["counts"]["foreign"] == 0, "{trial}");
        assert_eq!(trial["counts"]["unique"].as_u64(), sent, "{trial}");
    }
    trials
}

fn under<'a>(trials: &'a [Value], load: &str) -> Vec<&'a Value> {
    let found: Vec<_> = trials
        .iter()
        .filter(|trial| trial["load"].as_str().unwrap().ends_with(load))
        .collect();
    assert!(!found.is_empty(), "no trial under {load}");
    found
}

fn median_us(trial: &Value) -> f64 {
    trial["values"]["delay_p50"].as_f64().unwrap()
}

#[test]
fn work_on_each_packet_is_done_in_userspace_and_takes_its_time() {
    let Some(trials) = block("relay-work", &[]).map(trials) else {
        return;
    };
    assert!(
        under(&trials, "work=0us")
            .iter()
            .any(|trial| trial["arm"] == "xdp")
    );
    for load in ["work=50us", "fec-group=10"] {
        assert!(
            under(&trials, load)
                .iter()
                .all(|trial| trial["arm"] != "xdp")
        );
    }
    // Work is spun: it cannot take less.
    for trial in under(&trials, "work=50us") {
        assert!(median_us(trial) >= 50.0, "{trial}");
    }
}

#[test]
fn jitter_is_on_the_link_for_every_arm() {
    let Some(trials) = block("relay-jitter", &[]).map(trials) else {
        return;
    };
    let first = trials.iter().filter(|trial| trial["attempt"] == 0);
    assert_eq!(first.count(), 2 * 4);
    // The plan of delays is seeded, uniform from 0 to 1 ms, and nothing shortens them.
    for trial in under(&trials, "jitter=1ms") {
        assert!(median_us(trial) >= 400.0, "{trial}");
    }
}

/// A stream offered ten times the packets that its limit lets through.
const LIMITED: &str = r#"
name = "limited"
job = "relay"
about = "A stream beyond its rate limit"
measure = "delay"
baseline = "mmsg"
arms = ["mmsg", "tc", "xdp"]
blocks = 6
idle = "none"
primary = ["delay_p50"]

[[load]]
payload = "200B"
rate = "4kpps"
subscribers = 4
duration = "200ms"
options = { rate = { stream = "400pps" } }

[[question]]
text = "Is what is missing what was refused?"
metrics = ["loss_pct"]

[quick]
arms = ["mmsg", "xdp"]
loads = [0]
"#;

#[test]
fn what_a_relay_refuses_is_what_its_receivers_miss() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("limited.toml");
    std::fs::write(&plan, LIMITED).unwrap();
    let Some(record) = block(common::path(&plan), &["mmsg", "tc", "xdp"]) else {
        return;
    };
    assert_eq!(record[0]["experiment"], "limited");
    for trial in &record[1..] {
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        let missing = count("missing");
        assert!(missing > count("due") / 2, "{trial}");
        assert_eq!(count("drops.rate_limited"), missing, "{trial}");
        assert_eq!(count("due"), 4 * count("sent"), "{trial}");
        assert_eq!(count("unique") + missing, count("due"), "{trial}");
        let flags = trial["flags"].to_string();
        assert!(!flags.contains("counted where dropped"), "{trial}");
    }
}

/// A capture of a UDP datagram each millisecond.
fn capture(datagrams: u16) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([65535_u32, 1].iter().flat_map(|word| word.to_le_bytes()));
    for number in 0..datagrams {
        let payload = [number.to_be_bytes(), [0x55; 2]].concat().repeat(20);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((28 + 80_u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0xf6, 0x7d, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend(
            [5004_u16, 5004, 8 + 80, 0]
                .iter()
                .flat_map(|word| word.to_be_bytes()),
        );
        frame.extend(payload);
        let length = u32::try_from(frame.len()).unwrap();
        let record = [0, 1000 * u32::from(number), length, length];
        file.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

#[test]
fn a_capture_is_relayed_over_a_bridge() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, pcap) = (
        folder.path().join("calls.toml"),
        folder.path().join("calls.pcap"),
    );
    std::fs::write(&pcap, capture(60)).unwrap();
    let load = format!(
        "[[load]]\nfrom = {{ pcap = {:?} }}\nlink = \"bridge\"\nsubscribers = 2\nduration = \"200ms\"\n",
        pcap.display()
    );
    let (head, rest) = LIMITED.split_once("[[load]]").unwrap();
    let (_, questions) = rest.split_once("[[question]]").unwrap();
    std::fs::write(&plan, format!("{head}{load}\n[[question]]{questions}")).unwrap();
    let Some(record) = block(common::path(&plan), &["mmsg", "tc", "xdp"]) else {
        return;
    };
    assert_eq!(
        record[0]["loads"],
        serde_json::json!(["calls.pcap N=2 bridge"])
    );
    for trial in &record[1..] {
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        assert_eq!(
            [count("sent"), count("due"), count("unique")],
            [60, 120, 120],
            "{trial}"
        );
    }
}

/// The shipped experiment of this name with some of its loads, each for so long a time.
fn small(name: &str, loads: &[usize], time: &str, folder: &Path) -> std::path::PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = std::fs::read_to_string(shipped.join(name)).unwrap();
    let (text, _quick) = text.split_once("[quick]").unwrap();
    let (before, questions) = text.split_once("[[question]]").unwrap();
    let parts: Vec<&str> = before.split("[[load]]").collect();
    let loads = loads
        .iter()
        .map(|&load| format!("[[load]]{}", parts[load + 1]));
    // A class names loads by their place, which is another now.
    let questions = questions.split("[[question.class]]").next().unwrap();
    let text = format!(
        "{}{}[[question]]{questions}",
        parts[0],
        loads.collect::<String>()
    );
    let duration = format!("duration = {time:?}");
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("duration", _)) => duration.as_str(),
        _ => line,
    });
    let path = folder.join(name);
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    path
}

/// The trials of a small block of a live experiment, so short that it is soon over.
fn live(name: &str, loads: &[usize], arms: &[&str]) -> Option<Vec<Value>> {
    live_for("300ms", name, loads, arms)
}

/// The same for so long a time each; each knows where every packet went.
fn live_for(time: &str, name: &str, loads: &[usize], arms: &[&str]) -> Option<Vec<Value>> {
    let folder = tempfile::tempdir().unwrap();
    let plan = small(name, loads, time, folder.path());
    let trials = block(common::path(&plan), arms)?.split_off(1);
    for trial in &trials {
        let counts = trial["counts"].as_object().unwrap();
        let count = |name: &str| counts[name].as_u64().unwrap();
        assert!(
            count("sent") > 0 && count("due") >= count("sent"),
            "{trial}"
        );
        assert_eq!(count("unique") + count("missing"), count("due"), "{trial}");
        let drops = counts.iter().filter(|(name, _)| name.starts_with("drops."));
        let drops: u64 = drops.filter_map(|(_, count)| count.as_u64()).sum();
        assert_eq!(drops, count("missing"), "{trial}");
        let flags = trial["flags"].to_string();
        assert!(!flags.contains("counted where dropped"), "{trial}");
    }
    Some(trials)
}

/// The value of a trial, which every trial of the arm and load has.
fn value(trial: &Value, name: &str) -> f64 {
    trial["values"][name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name}: {trial}"))
}

#[test]
fn what_a_captured_packet_costs_is_measured_of_every_datapath() {
    let arms = [
        "recv",
        "tpacket",
        "xdp-ringbuf",
        "xdp-flow",
        "xdp-generic",
        "floor",
    ];
    let Some(trials) = live("features-cpu.toml", &[0, 1, 2], &arms) else {
        return;
    };
    for trial in under(&trials, "500ms") {
        let parts = ["cpu_ns_per_packet_receive", "threads_ns_per_packet"];
        for name in parts {
            assert!(value(trial, name) > 0.0, "{name}: {trial}");
        }
        assert!(trial["arm"] == "floor" || value(trial, "memory_mib") > 0.0);
    }
    for trial in under(&trials, "filter=udp") {
        assert!(
            (value(trial, "accuracy_pct") - 100.0).abs() < 1e-9,
            "{trial}"
        );
    }
    for trial in under(&trials, "early=1") {
        assert!(value(trial, "row_latency_us") > 0.0, "{trial}");
    }
}

#[test]
fn the_origins_method_takes_a_packet_seen_twice_for_speed() {
    // So long that the socket's loop may come late, or be away for a while.
    let arms = ["recv", "xdp-generic"];
    let Some(trials) = live_for("2s", "features-cpu.toml", &[1], &arms) else {
        return;
    };
    let of = |arm: &str| trials.iter().find(|trial| trial["arm"] == arm).unwrap();
    // Each packet twice and an error for each: what the origin's method took for speed and success.
    assert!(value(of("recv"), "origin_pps") > 1.5 * value(of("xdp-generic"), "origin_pps"));
    let success = value(of("xdp-generic"), "origin_success_pct");
    assert!((45.0..100.0).contains(&success), "{success}");
}

#[test]
fn an_overloaded_capture_knows_what_it_has_lost() {
    let Some(trials) = live(
        "features-overload.toml",
        &[0, 1],
        &["recv", "xdp-flow", "floor"],
    ) else {
        return;
    };
    for trial in &trials {
        assert!(value(trial, "goodput_pps") > 0.0, "{trial}");
    }
}

#[test]
fn every_wakeup_setting_takes_in_what_comes() {
    let arms = ["wakeup-adaptive", "wakeup-every", "wakeup-20ms"];
    let Some(trials) = live("features-batching.toml", &[1], &arms) else {
        return;
    };
    for trial in under(&trials, "500ms") {
        assert!(value(trial, "threads_ns_per_packet") > 0.0, "{trial}");
    }
}

#[test]
fn every_rate_class_has_its_rows_and_its_cost() {
    let Some(trials) = live("features-rate.toml", &[2, 9], &["recv", "xdp-flow"]) else {
        return;
    };
    for trial in under(&trials, "early=1") {
        assert!(value(trial, "row_latency_us") > 0.0, "{trial}");
    }
    for trial in under(&trials, "500ms") {
        assert!(value(trial, "threads_ns_per_packet") > 0.0, "{trial}");
    }
}

#[test]
fn inferences_beside_a_capture_are_counted() {
    let Some(trials) = live("features-freed.toml", &[0], &["recv", "xdp-flow"]) else {
        return;
    };
    for trial in &trials {
        assert!(value(trial, "inferences_per_s") > 0.0, "{trial}");
    }
}

#[test]
fn trees_in_the_kernel_say_what_they_say_in_userspace() {
    let arms = ["xdp-flow", "tree-at-8", "tree-every", "tree-complete"];
    let Some(trials) = live("features-tree.toml", &[0], &arms) else {
        return;
    };
    let mut compared = 0;
    for trial in &trials {
        assert!(value(trial, "program_ns_per_packet") > 0.0, "{trial}");
        if let Some(differing) = trial["counts"]["classes_differing"].as_u64() {
            assert_eq!(differing, 0, "{trial}");
            compared += 1;
        }
        let model = &trial["environment"]["capture"]["model"];
        assert_eq!(model.is_object(), trial["arm"] != "xdp-flow", "{trial}");
        let asked = model["asked"].as_u64().unwrap_or(0);
        let packets = trial["counts"]["unique"].as_u64().unwrap();
        match trial["arm"].as_str().unwrap() {
            "tree-every" | "tree-complete" => assert_eq!(asked, packets, "{trial}"),
            "tree-at-8" => assert!(asked > 0 && asked < packets / 4, "{trial}"),
            _ => {}
        }
    }
    assert!(compared >= 2, "{compared} trials were compared");
}

#[test]
#[ignore = "needs rtpengine, nginx, socat and nftables"]
fn every_peer_of_this_machine_delivers() {
    let peers = ["rtpengine", "nginx", "socat", "dnat"];
    let Some(mut record) = block("relay-peers", &[&["recv"][..], &peers].concat()) else {
        return;
    };
    let trials = record.split_off(1);
    assert_eq!(record[0]["skipped"], serde_json::json!([]));
    for peer in peers {
        let mut own = trials.iter().filter(|trial| trial["arm"] == peer);
        let counts = &own.next().unwrap()["counts"];
        let count = |name: &str| counts[name].as_u64().unwrap_or_default();
        // How much each may lose is for experiments to say.
        assert!(
            count("sent") > 0 && 2 * count("unique") > count("sent"),
            "{peer}: {counts}"
        );
        assert_eq!(
            count("foreign") + count("duplicates"),
            0,
            "{peer}: {counts}"
        );
    }
}
