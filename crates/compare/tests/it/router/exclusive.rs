//! Experiments of the router in the small: every engine of this machine finds the right answers.

use std::path::Path;
use std::process::Command;

use crate::common::{ONE_BLOCK, alone, lowroad, path, program, record, stdout, succeeded};
use serde_json::Value;
use sys::require::{Class, skip};
use tempfile::TempDir;

/// The record of one block of some loads of the shipped experiment, on small generated tables.
fn block(name: &str, loads: &[usize], arms: &str) -> Option<Vec<Value>> {
    let (folder, _) = run(name, loads, arms)?;
    Some(record(&folder.path().join(OUT)))
}

/// Where a run writes in its folder.
const OUT: &str = "out";

/// As `block`: the folder, and what it says.
fn run(name: &str, loads: &[usize], arms: &str) -> Option<(TempDir, String)> {
    if !sys::require::root() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = std::fs::read_to_string(shipped.join(format!("{name}.toml"))).unwrap();
    let (text, _quick) = text.split_once("[quick]").unwrap();
    let (stated, _questions) = text.split_once("[[question]]").unwrap();
    let parts: Vec<&str> = stated.split("[[load]]").collect();
    let loads = loads.iter().map(|&load| parts[load + 1]);
    let text = format!(
        "{}[[load]]{}",
        parts[0],
        loads.collect::<Vec<_>>().join("[[load]]")
    );
    let small = [
        ("901899", "3000"),
        ("160147", "2000"),
        (" 100k\"", " 700\""),
        (" 10k\"", " 300\""),
        (" 1k\"", " 90\""),
        ("65536", "512"),
        ("rules = 1000", "rules = 60"),
        ("batch = 1024", "batch = 64"),
    ];
    let mut text = small
        .iter()
        .fold(text, |text, (large, small)| text.replace(large, small));
    for duration in ["50ms", "500ms", "1s", "8s"] {
        text = text.replace(&format!("duration = \"{duration}\""), "duration = \"20ms\"");
    }
    let plan = folder.path().join("small.toml");
    std::fs::write(&plan, text).unwrap();
    let out = folder.path().join(OUT);
    let output = alone(|| {
        lowroad(&["compare", path(&plan), "--arms", arms, "--out", path(&out)])
            .args(ONE_BLOCK)
            // Tables are generated, whatever this machine has.
            .env_remove("LOWROAD_CORPUS")
            .output()
            .unwrap()
    });
    succeeded(&output);
    Some((folder, stdout(&output)))
}

/// Every trial has these metrics, found nothing wrong, and all arms agree on every key.
fn lookups(name: &str, loads: &[usize], arms: &str, metric: &str) {
    let Some(mut record) = block(name, loads, arms) else {
        return;
    };
    let trials = record.split_off(1);
    let skipped = record[0]["skipped"].as_array().unwrap();
    let arms = record[0]["arms"].as_array().unwrap().len();
    assert!(arms > 1, "{skipped:?}");
    let looked_up = |trial: &&Value| trial["counts"]["lookups"].is_u64();
    let mut sums = std::collections::BTreeMap::new();
    for trial in trials.iter().filter(looked_up) {
        let value = |name: &str| trial["values"][name].as_f64().unwrap();
        assert!(value(metric) > 0.0 && value("mib") > 0.0, "{trial}");
        assert!(value("wrong").abs() < 0.5, "{trial}");
        assert_eq!(trial["environment"]["table"], "generated", "{trial}");
        let load = trial["load"].as_str().unwrap().to_owned();
        let sum = trial["counts"]["checksum"].as_u64().unwrap();
        assert_eq!(*sums.entry(load).or_insert(sum), sum, "{trial}");
    }
    assert!(!sums.is_empty(), "{sums:?}");
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
    }
    let mut builds = trials.iter().filter(|trial| !looked_up(trial));
    assert!(builds.all(|trial| trial["values"]["build_s"].as_f64() > Some(0.0)));
}

const ENGINES_OF_IPV4: &str =
    "lowroad,bytes-portable,words-avx2,rte_fib,rte_fib-scalar,rte_lpm,bart";

#[test]
fn every_engine_finds_longest_ipv4_prefix() {
    lookups("router-lpm4", &[0], ENGINES_OF_IPV4, "ns_per_lookup");
}

#[test]
#[ignore = "a table of many next hops as well"]
fn every_engine_finds_the_longest_prefix_of_ipv4() {
    lookups("router-lpm4", &[0, 6], ENGINES_OF_IPV4, "ns_per_lookup");
}

#[test]
fn every_engine_finds_the_longest_prefix_of_ipv6() {
    lookups(
        "router-lpm6",
        &[0],
        "lowroad,flat-portable,rte_fib6,rte_fib6-scalar,bart6",
        "ns_per_lookup",
    );
}

#[test]
fn the_kernel_finds_what_the_table_says() {
    lookups(
        "router-bpf",
        &[1],
        "bpf-arrays,bpf_lpm_trie",
        "ns_per_lookup",
    );
}

const CLASSIFIERS: &str = "lowroad,acl-portable,rte_acl";

#[test]
fn every_classifier_finds_first_rule() {
    lookups("router-acl", &[1], CLASSIFIERS, "ns_per_packet");
}

#[test]
#[ignore = "captured packets as well"]
fn every_classifier_finds_the_first_rule() {
    lookups("router-acl", &[1, 5], CLASSIFIERS, "ns_per_packet");
}

/// Runs these loads, each of which changes a table while another thread looks up.
fn tables_change(loads: &[usize]) {
    let Some(mut record) = block("router-updates", loads, "lowroad") else {
        return;
    };
    for trial in record.split_off(1) {
        for name in ["updates", "batches"] {
            assert!(trial["counts"][name].as_u64() > Some(0), "{trial}");
        }
        for name in ["updates_per_s", "ns_per_lookup", "longest_update_us"] {
            assert!(trial["values"][name].as_f64() > Some(0.0), "{trial}");
        }
    }
}

#[test]
fn every_table_changes_during_lookups() {
    tables_change(&[0, 1, 5]);
}

#[test]
#[ignore = "changes of rules without a rate as well"]
fn tables_change_while_others_look_up() {
    tables_change(&[0, 1, 2, 5]);
}

/// Runs these loads on every router. `cells` has the end of each load's name, and the arms that run under it.
fn routers_forward(loads: &[usize], cells: &[(&str, &[&str])]) {
    if program().is_none() {
        return;
    }
    let nft = Command::new("nft").arg("--version").output();
    if nft.is_err() {
        return skip(Class::Core, "nft is not installed");
    }
    let arms = "xdp,xdp-fib,kernel";
    let Some(mut record) = block("router-forwarding", loads, arms) else {
        return;
    };
    let trials = record.split_off(1);
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        assert!(trial["values"]["forward_pps"].as_f64() > Some(0.0));
        // On a busy machine it can have any value.
        assert!(trial["values"]["cpu_ns_per_packet"].is_f64(), "{trial}");
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        assert!(count("sent") >= count("forwarded"), "{trial}");
        // A sample of one in 64 was looked at, and found as a router sends it.
        assert!(count("looked_at") > count("forwarded") / 100, "{trial}");
        let ruled = trial["load"].as_str().unwrap().contains("rules");
        assert_eq!(count("forbidden") > 0, ruled, "{trial}");
    }
    for (load, arms) in cells {
        let under = |trial: &&Value| trial["load"].as_str().unwrap().ends_with(load);
        let ran: std::collections::BTreeSet<_> = trials
            .iter()
            .filter(under)
            .map(|trial| trial["arm"].as_str().unwrap())
            .collect();
        assert_eq!(ran, arms.iter().copied().collect(), "{load}");
    }
}

const LIVE: (&str, &[&str]) = ("generator=live", &["xdp", "xdp-fib"]);
const RULES: (&str, &[&str]) = ("rules=60", &["xdp", "kernel"]);

#[test]
fn every_router_forwards_by_table_and_rules() {
    routers_forward(&[0, 2], &[LIVE, RULES]);
}

#[test]
#[ignore = "a generator on AF_XDP without rules as well"]
fn routers_forward_by_table_and_rules() {
    let plain: (&str, &[&str]) = ("generator=af-xdp", &["xdp", "xdp-fib", "kernel"]);
    routers_forward(&[0, 1, 2], &[LIVE, plain, RULES]);
}

/// The output of `lowroad router devices` for OpenCL's devices and all GPUs; none, with the skip reported, if
/// PoCL's processor is missing.
fn devices() -> Option<Vec<Value>> {
    let told = Command::new(program()?)
        .args(["router", "devices", "--json"])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let backends = told["backends"].as_array().unwrap().iter();
    let all = backends.flat_map(|backend| backend["devices"].as_array().unwrap());
    let all: Vec<Value> = all.cloned().collect();
    if !all.iter().any(|device| device["kind"] == "CPU") {
        skip(
            Class::Core,
            "no device is a CPU: apt-get install pocl-opencl-icd",
        );
        return None;
    }
    Some(all)
}

/// Runs these loads on every device, and checks that a CPU among them is reported as emulated and not compared.
fn devices_process(loads: &[usize]) {
    let Some(devices) = devices() else {
        return;
    };
    let arms = "cpu,cpu-memory,opencl-naive,opencl-memory,cuda-naive,cuda-memory,opencl-cpu-naive,opencl-cpu-headers,opencl-cpu-mapped,opencl-cpu-memory";
    let Some((folder, said)) = run("router-story", loads, arms) else {
        return;
    };
    let mut record = record(&folder.path().join(OUT));
    let trials = record.split_off(1);
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        let arm = trial["arm"].as_str().unwrap();
        for name in [
            "gbps",
            "ns_per_packet",
            "process_us",
            "gather_ns",
            "process_ns",
            "scatter_ns",
        ] {
            assert!(
                trial["values"][name].as_f64() > Some(0.0),
                "{name}: {trial}"
            );
        }
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        let verdicts = ["forwarded", "dropped", "punted", "no_route"];
        let decided: u64 = verdicts.iter().map(|name| count(name)).sum();
        assert_eq!(decided, count("packets"), "{trial}");
        let timed = trial["values"]["kernel_us"].as_f64() > Some(0.0);
        let drawn = trial["spans"]
            .as_array()
            .is_some_and(|spans| !spans.is_empty());
        let on_device = arm.starts_with("opencl") || arm.starts_with("cuda");
        assert_eq!((timed, drawn), (on_device, on_device), "{trial}");
        assert_eq!(
            trial["environment"]["device.emulated"] == true,
            arm.starts_with("opencl-cpu"),
            "{trial}"
        );
        if arm.ends_with("-memory") {
            assert!(trial["counts"]["sent"].is_null(), "{trial}");
        } else {
            assert!(trial["values"]["send_ns"].as_f64() > Some(0.0), "{trial}");
            assert!(count("socket.received") + count("socket.lost") <= count("sent"));
            assert!(count("socket.sent") >= count("forwarded"), "{trial}");
        }
    }
    // The command that adds blocks names every arm.
    let results = said.lines().filter(|line| !line.contains("--arms"));
    for line in results.filter(|line| line.contains("opencl-cpu")) {
        assert!(
            line.contains("EMULATED") && !line.contains("than"),
            "{line}"
        );
    }
    if devices.iter().any(|device| device["kind"] == "GPU") {
        return;
    }
    let none = said.lines().filter(|line| line.contains("GPU"));
    let none: Vec<&str> = none.collect();
    assert_eq!(none.len(), 1, "{none:?}");
    assert!(
        none[0].starts_with(
            "opencl-naive, opencl-memory, cuda-naive, cuda-memory did not run: no GPU is here"
        ),
        "{}",
        none[0]
    );
    let of_gpus = |trial: &&Value| {
        let arm = trial["arm"].as_str().unwrap();
        arm.starts_with("cuda") || arm.starts_with("opencl") && !arm.starts_with("opencl-cpu")
    };
    assert_eq!(trials.iter().filter(of_gpus).count(), 0);
}

#[test]
fn cpu_as_device_is_emulated() {
    devices_process(&[8]);
}

#[test]
#[ignore = "rules alone as well"]
fn cpu_device_is_marked_emulated() {
    devices_process(&[1, 8]);
}
