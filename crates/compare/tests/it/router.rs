//! The router's engines as a process, and what its experiments need of the machine.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{lowroad, path, stdout, succeeded};

mod exclusive;

/// An engine's answers to these requests, after its first line.
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
fn engine_counts_wrong_answers() {
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
