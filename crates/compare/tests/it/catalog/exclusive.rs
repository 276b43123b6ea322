//! Experiments, most of them those that ship, in the small and for real: what they record must make
//! sense.

use crate::common::{ONE_BLOCK, alone, lowroad, path, program, record, shipped, succeeded};
use serde_json::Value;

/// The trials of one block at `--quick`, or of the named arms, after the header; `None` where this
/// cannot be run.
fn block(experiment: &str, arms: &[&str]) -> Option<Vec<Value>> {
    if !sys::require::root() {
        return None;
    }
    program()?;
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

/// Runs one block of these loads of a shipped experiment. `time` maps the text of a load to its duration.
fn block_of(
    experiment: &str,
    loads: &[usize],
    time: impl Fn(&str) -> &'static str,
    arms: &[&str],
) -> Option<Vec<Value>> {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("small.toml");
    std::fs::write(&plan, shipped(experiment, loads, time)).unwrap();
    block(path(&plan), arms)
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

/// Checks that work on packets is done in userspace, and takes its time.
fn check_work(trials: &[Value]) {
    assert!(
        under(trials, "work=0us")
            .iter()
            .any(|trial| trial["arm"] == "xdp")
    );
    for load in ["work=50us", "fec-group=10"] {
        assert!(
            under(trials, load)
                .iter()
                .all(|trial| trial["arm"] != "xdp")
        );
    }
    // Work is spun: it cannot take less.
    for trial in under(trials, "work=50us") {
        assert!(median_us(trial) >= 50.0, "{trial}");
    }
}

#[test]
fn work_takes_its_time_in_userspace() {
    let arms = ["recv", "xdp"];
    if let Some(record) = block_of("relay-work", &[0, 2, 4], |_| "200ms", &arms) {
        check_work(&trials(record));
    }
}

#[test]
#[ignore = "the whole of --quick"]
fn packet_work_runs_in_userspace() {
    if let Some(record) = block("relay-work", &[]) {
        check_work(&trials(record));
    }
}

/// Checks that both arms ran under the expected number of loads, and that the jitter is on the link.
fn check_jitter(trials: &[Value], loads: usize) {
    let first = trials.iter().filter(|trial| trial["attempt"] == 0);
    assert_eq!(first.count(), loads * 4);
    // The plan of delays is seeded, uniform from 0 to 1 ms, and nothing shortens them.
    for trial in under(trials, "jitter=1ms") {
        assert!(median_us(trial) >= 400.0, "{trial}");
    }
}

#[test]
fn jitter_delays_every_arm() {
    let arms = ["recv", "xdp"];
    if let Some(record) = block_of("relay-jitter", &[2], |_| "500ms", &arms) {
        check_jitter(&trials(record), 1);
    }
}

#[test]
#[ignore = "the whole of --quick"]
fn jitter_is_on_the_link_for_every_arm() {
    if let Some(record) = block("relay-jitter", &[]) {
        check_jitter(&trials(record), 2);
    }
}

/// An experiment that offers a stream ten times its rate limit.
const RATE_LIMIT: &str = r#"
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
loads = [0]
"#;

#[test]
fn relay_drops_equal_receiver_losses() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("limited.toml");
    std::fs::write(&plan, RATE_LIMIT).unwrap();
    let Some(record) = block(path(&plan), &[]) else {
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
    let (head, rest) = RATE_LIMIT.split_once("[[load]]").unwrap();
    let (_, questions) = rest.split_once("[[question]]").unwrap();
    std::fs::write(&plan, format!("{head}{load}\n[[question]]{questions}")).unwrap();
    let Some(record) = block(path(&plan), &["mmsg", "tc", "xdp"]) else {
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

/// The trials of a small block of a live experiment, so short that it is soon over.
fn live(name: &str, loads: &[usize], arms: &[&str]) -> Option<Vec<Value>> {
    live_for(name, loads, |_| "300ms", arms)
}

/// As `live`, with `time` from the text of a load to its duration. Each trial accounts for every packet.
fn live_for(
    name: &str,
    loads: &[usize],
    time: impl Fn(&str) -> &'static str,
    arms: &[&str],
) -> Option<Vec<Value>> {
    let trials = block_of(name, loads, time, arms)?.split_off(1);
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
fn captured_packets_cost_is_measured() {
    let arms = ["recv", "tpacket", "xdp-ringbuf", "xdp-flow", "floor"];
    let Some(trials) = live("features-cpu", &[0], &arms) else {
        return;
    };
    for trial in under(&trials, "500ms") {
        let parts = ["cpu_ns_per_packet_receive", "threads_ns_per_packet"];
        for name in parts {
            assert!(value(trial, name) > 0.0, "{name}: {trial}");
        }
        assert!(trial["arm"] == "floor" || value(trial, "memory_mib") > 0.0);
    }
}

#[test]
fn loopback_packets_are_seen_as_by_origin() {
    // So long that the socket's loop may come late, or be away for a while.
    let time = |load: &str| match load.contains("row-latency") {
        true => "300ms",
        false => "2s",
    };
    let arms = ["recv", "tpacket", "xdp-generic"];
    let Some(trials) = live_for("features-cpu", &[1, 2], time, &arms) else {
        return;
    };
    for trial in under(&trials, "early=1") {
        assert!(value(trial, "row_latency_us") > 0.0, "{trial}");
    }
    let filtered = under(&trials, "filter=udp");
    for trial in &filtered {
        assert!(
            (value(trial, "accuracy_pct") - 100.0).abs() < 1e-9,
            "{trial}"
        );
    }
    let of = |arm: &str| *filtered.iter().find(|trial| trial["arm"] == arm).unwrap();
    // Each packet twice and an error for each: what the origin's method took for speed and success.
    assert!(value(of("recv"), "origin_pps") > 1.5 * value(of("xdp-generic"), "origin_pps"));
    let success = value(of("xdp-generic"), "origin_success_pct");
    assert!((45.0..100.0).contains(&success), "{success}");
}

/// Checks that a capture takes packets in under these loads. The first load is as much as can be sent.
fn check_overload(loads: &[usize]) {
    let Some(trials) = live("features-overload", loads, &["recv", "xdp-flow", "floor"]) else {
        return;
    };
    for trial in &trials {
        assert!(value(trial, "goodput_pps") > 0.0, "{trial}");
    }
}

#[test]
fn overloaded_capture_knows_its_losses() {
    check_overload(&[0]);
}

#[test]
#[ignore = "a high rate as well"]
fn an_overloaded_capture_knows_what_it_has_lost() {
    check_overload(&[0, 1]);
}

#[test]
fn every_wakeup_setting_takes_in_what_comes() {
    let arms = ["wakeup-adaptive", "wakeup-every", "wakeup-20ms"];
    let Some(trials) = live("features-batching", &[1], &arms) else {
        return;
    };
    for trial in under(&trials, "500ms") {
        assert!(value(trial, "threads_ns_per_packet") > 0.0, "{trial}");
    }
}

#[test]
fn rows_of_many_flows_have_latency() {
    let Some(trials) = live("features-rate", &[9], &["recv", "xdp-flow"]) else {
        return;
    };
    for trial in under(&trials, "early=1") {
        assert!(value(trial, "row_latency_us") > 0.0, "{trial}");
    }
}

#[test]
#[ignore = "the cost as well"]
fn rate_classes_have_rows_and_cost() {
    let Some(trials) = live("features-rate", &[2, 9], &["recv", "xdp-flow"]) else {
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
    let Some(trials) = live("features-freed", &[0], &["recv", "xdp-flow"]) else {
        return;
    };
    for trial in &trials {
        assert!(value(trial, "inferences_per_s") > 0.0, "{trial}");
    }
}

#[test]
fn kernel_trees_agree_with_userspace() {
    let arms = ["xdp-flow", "tree-at-8", "tree-every", "tree-complete"];
    let Some(trials) = live("features-tree", &[0], &arms) else {
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
