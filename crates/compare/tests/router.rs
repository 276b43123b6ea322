//! Experiments of the router in the small: every engine of this machine finds the right answers.
#![allow(clippy::unwrap_used, reason = "a test fails where its set-up does")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{ONE_BLOCK, alone, lowroad, path, record, stdout, succeeded};
use serde_json::{Value, json};
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

#[test]
fn every_engine_finds_the_longest_prefix_of_ipv4() {
    lookups(
        "router-lpm4",
        &[0, 6],
        "lowroad,bytes-portable,words-avx2,rte_fib,rte_fib-scalar,rte_lpm,bart",
        "ns_per_lookup",
    );
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

#[test]
fn every_classifier_finds_the_first_rule() {
    lookups(
        "router-acl",
        &[1, 5],
        "lowroad,acl-portable,rte_acl",
        "ns_per_packet",
    );
}

#[test]
fn tables_change_while_others_look_up() {
    let Some(mut record) = block("router-updates", &[0, 1, 2, 5], "lowroad") else {
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
fn every_router_forwards_by_the_table_and_the_rules() {
    let routes = Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad");
    if !routes.is_file() {
        return skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
    }
    let nft = Command::new("nft").arg("--version").output();
    if nft.is_err() {
        return skip(Class::Core, "nft is not installed");
    }
    let arms = "xdp,xdp-fib,kernel";
    let Some(mut record) = block("router-forwarding", &[0, 1, 2], arms) else {
        return;
    };
    let trials = record.split_off(1);
    for trial in &trials {
        assert!(!trial["flags"].to_string().contains("failed"), "{trial}");
        assert!(trial["values"]["forward_pps"].as_f64() > Some(0.0));
        // Of a machine that is busy otherwise it may be anything.
        assert!(trial["values"]["cpu_ns_per_packet"].is_f64(), "{trial}");
        let count = |name: &str| trial["counts"][name].as_u64().unwrap();
        assert!(count("sent") >= count("forwarded"), "{trial}");
        // A sample of one in 64 was looked at, and found as a router sends it.
        assert!(count("looked_at") > count("forwarded") / 100, "{trial}");
        let ruled = trial["load"].as_str().unwrap().contains("rules");
        assert_eq!(count("forbidden") > 0, ruled, "{trial}");
    }
    for (load, arms) in [
        ("generator=live", &["xdp", "xdp-fib"][..]),
        ("generator=af-xdp", &["xdp", "xdp-fib", "kernel"]),
        ("rules=60", &["xdp", "kernel"]),
    ] {
        let under = |trial: &&Value| trial["load"].as_str().unwrap().ends_with(load);
        let ran: std::collections::BTreeSet<_> = trials
            .iter()
            .filter(under)
            .map(|trial| trial["arm"].as_str().unwrap())
            .collect();
        assert_eq!(ran, arms.iter().copied().collect(), "{load}");
    }
}

/// What `lowroad router devices` says of OpenCL's devices and all GPUs; none, with the skip reported, where
/// a processor of PoCL's is missing.
fn devices() -> Option<Vec<Value>> {
    let beside = Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad");
    if !beside.is_file() {
        skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
        return None;
    }
    let told = Command::new(beside)
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

#[test]
fn a_cpu_that_is_a_device_is_called_so_and_compared_with_nothing() {
    let Some(devices) = devices() else {
        return;
    };
    let arms = "cpu,cpu-memory,opencl-naive,opencl-memory,cuda-naive,cuda-memory,opencl-cpu-naive,opencl-cpu-headers,opencl-cpu-mapped,opencl-cpu-memory";
    let Some((folder, said)) = run("router-story", &[1, 8], arms) else {
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
    for line in said.lines().filter(|line| line.contains("opencl-cpu")) {
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

/// What an engine answers to these requests, after its first line.
fn answers(requests: &[Value]) -> Vec<Value> {
    let mut engine = lowroad(&["engine"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = engine.stdin.take().unwrap();
    for request in requests {
        writeln!(input, "{request}").unwrap();
    }
    drop(input);
    let output = engine.wait_with_output().unwrap();
    succeeded(&output);
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let ready: Value = lines.next().unwrap();
    assert!(ready["ready"].is_string(), "{ready}");
    lines.collect()
}

#[test]
fn an_engine_counts_wrong_answers_and_adds_up_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    // 10.0.0.0/8 by next hop 7.
    let mut route = 0x0a00_0000_u32.to_ne_bytes().to_vec();
    route.extend([8, 0]);
    route.extend(7_u16.to_ne_bytes());
    let keys = [0x0a01_0203_u32, 0x0b00_0000, 0x0aff_ffff].map(u32::to_ne_bytes);
    let told = [7_u16, 7, 0].map(u16::to_ne_bytes);
    let (table, keys, told) = (
        file("table", &route),
        file("keys", keys.as_flattened()),
        file("answers", told.as_flattened()),
    );
    let load = |engine: &str| json!({ "do": "load", "engine": engine, "table": table });
    let pass = json!({ "do": "pass", "keys": keys, "answers": told, "ms": 0 });
    let answers = answers(&[
        pass.clone(),
        load("bytes-none"),
        load("words-portable"),
        pass,
    ]);
    assert!(answers[0]["error"].is_string() && answers[1]["error"].is_string());
    assert!(answers[2]["mib"].as_f64() > Some(1.0), "{}", answers[2]);
    assert_eq!(answers[3]["wrong"], 2, "{}", answers[3]);
    assert_eq!(answers[3]["checksum"], 7 + 3 * 7, "{}", answers[3]);
}

#[test]
fn only_what_forwards_needs_the_kernels_firewall() {
    if !sys::require::root() {
        return;
    }
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for (name, needed) in [("router-crossover", false), ("router-forwarding", true)] {
        let plan = experiments.join(format!("{name}.toml"));
        let survey = lowroad(&["compare", path(&plan), "--dry-run"]);
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c"])
            .arg("mount --bind /dev/null \"$(command -v nft)\" && exec \"$@\"")
            .arg("sh")
            .arg(survey.get_program())
            .args(survey.get_args())
            .output()
            .unwrap();
        succeeded(&output);
        let said = stdout(&output);
        assert!(said.contains("baseline"), "{said}");
        assert_eq!(said.contains("nft is not installed"), needed, "{said}");
    }
}
