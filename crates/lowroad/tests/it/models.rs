//! Models by the real binary: looked at, compiled, asked about captures and rows; and the example that
//! trains one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use packet::pcap::{ETHERNET, Reader, Writer};
use serde_json::Value;
use sys::require;

use super::onnx::evaluator;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// A tree over columns of `tree.v1`.
const TREE: &str = r#"{"format":"lowroad-trees-1","model":"by hand","columns":["packets","protocol"],"inputs":2,
"labels":["few","many"],"compare":"single","link":"mean","base":["0.0"],"trees":[{"output":0,
"left":[1,-1,-1],"right":[2,-1,-1],"feature":[0,-2,-2],"threshold":["3.5","-2.0","-2.0"],
"missing_left":null,"value":[[],["0.25"],["1.0"]]}]}"#;
const MANIFEST: &str = r#"
name = "sizes"
trees = "trees.json"
schema = "tree.v1"
columns = ["tree.v1/packets", "tree.v1/protocol"]
classes = [{ name = "few" }, { name = "many", action = "mark", dscp = 8 }]
"#;

fn lowroad(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .arg("features")
        .args(arguments)
        .output()
        .unwrap()
}

fn done(arguments: &[&str]) -> String {
    let output = lowroad(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with a manifest and its trees, and a capture.
fn folder() -> (tempfile::TempDir, impl Fn(&str) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let file = move |name: &str| path.join(name).display().to_string();
    fs::write(file("model.toml"), MANIFEST).unwrap();
    fs::write(file("trees.json"), TREE).unwrap();
    let capture = loadgen::mix::write(Vec::new(), 3000, 7).unwrap();
    fs::write(file("mix.pcap"), capture).unwrap();
    (folder, file)
}

#[test]
fn a_model_is_checked_shown_and_compiled() {
    let (_folder, file) = folder();
    let (manifest, compiled) = (file("model.toml"), file("model.json"));
    let checked = done(&["model", "check", &manifest]);
    assert!(
        checked.contains("sizes: 2 columns of tree.v1, 2 classes, 1 trees"),
        "{checked}"
    );
    assert!(checked.ends_with("the kernel can ask it\n"), "{checked}");
    done(&["model", "compile", &manifest, "-o", &compiled]);
    for model in [&manifest, &compiled] {
        let shown = done(&["model", "show", model]);
        let tree = "tree 0\n  tree.v1/packets <= 3\n    0.2500\n    1.0000\n";
        assert!(shown.ends_with(tree), "{shown}");
        assert!(shown.contains("\n  many  mark\n"), "{shown}");
    }
    let json: Value =
        serde_json::from_str(&done(&["model", "check", &compiled, "--json"])).unwrap();
    assert_eq!(json["kernel"], true);
    let columns = r#"columns = [{ id = "flow.v1/frame_mean", null = 0 }, "flow.v1/protocol"]"#;
    let ours = r#"columns = ["tree.v1/packets", "tree.v1/protocol"]"#;
    let others = MANIFEST
        .replace(ours, columns)
        .replace("tree.v1", "flow.v1");
    fs::write(file("model.toml"), others).unwrap();
    fs::write(file("trees.json"), TREE.replace("packets", "frame_mean")).unwrap();
    let checked = done(&["model", "check", &manifest]);
    assert!(
        checked.contains("asks for flow.v1/frame_mean, which the kernel does not have"),
        "{checked}"
    );
    fs::write(file("trees.json"), TREE).unwrap();
    fs::write(file("model.toml"), MANIFEST.replace("protocol", "colour")).unwrap();
    let refused = lowroad(&["model", "check", &manifest]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("names tree.v1/colour, which is no column"),
        "{said}"
    );
}

/// Rows of JSON lines.
fn lines(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn captures_and_rows_are_scored_alike() {
    let (_folder, file) = folder();
    let (model, capture) = (file("model.toml"), file("mix.pcap"));
    let (from_capture, from_rows) = (file("a.jsonl"), file("b.jsonl"));
    done(&["score", &capture, "--model", &model, "-o", &from_capture]);
    for rows in ["rows.parquet", "rows.arrow"] {
        let rows = file(rows);
        done(&["pcap", &capture, "--schema", "tree.v1", "-o", &rows]);
        done(&["score", &rows, "--model", &model, "-o", &from_rows]);
        assert_eq!(lines(&from_capture), lines(&from_rows));
    }
    // Several captures are one: the packets of the second one are later in the same flows.
    let (half, other) = (file("1.pcap"), file("2.pcap"));
    let bytes = fs::read(&capture).unwrap();
    let (first, second) = halves(&bytes);
    fs::write(&half, first).unwrap();
    fs::write(&other, second).unwrap();
    done(&["score", &half, &other, "--model", &model, "-o", &from_rows]);
    assert_eq!(lines(&from_capture), lines(&from_rows));
    let saved = file("rows.arrow");
    let refused = lowroad(&["score", &half, &saved, "--model", &model, "-o", &from_rows]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("rows.arrow is a file of rows, of which one is scored at a time"),
        "{said}"
    );
    let rows = lines(&from_capture);
    assert!(rows.len() > 20);
    for row in rows {
        let many = row["packets"].as_u64().unwrap() > 3;
        assert_eq!(row["class"], if many { "many" } else { "few" });
        assert_eq!(row["class_probability"], if many { 1.0 } else { 0.75 });
    }
    let others = file("others.parquet");
    done(&["pcap", &capture, "-o", &others]);
    let refused = lowroad(&["score", &others, "--model", &model, "-o", &from_rows]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("packets is flow.v1/packets"), "{said}");
}

/// A capture as two, of which the second one begins at a record in the middle.
fn halves(capture: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut writers = [0, 1].map(|_| Writer::new(Vec::new(), ETHERNET).unwrap());
    let frames = Reader::new(capture).unwrap();
    for (at, frame) in frames.enumerate() {
        let frame = frame.unwrap();
        let writer = &mut writers[usize::from(at >= 1500)];
        writer.write(frame.timestamp_ns, &frame.frame).unwrap();
    }
    let [first, second] = writers.map(|writer| writer.finish().unwrap());
    (first, second)
}

#[test]
fn networks_score_captures_and_rows_and_are_not_for_the_kernel() {
    if evaluator().is_none() {
        return;
    }
    let (_folder, file) = folder();
    let saved = Path::new(HERE).join("../onnx/tests/it/saved");
    let model = saved.join("network-3.toml").display().to_string();
    let (capture, rows) = (file("mix.pcap"), file("rows.parquet"));
    let (from_capture, from_rows) = (file("a.jsonl"), file("b.jsonl"));
    let checked = done(&["model", "check", &model]);
    assert!(
        checked.starts_with("network-3: 6 columns of flow.v1, 3 classes"),
        "{checked}"
    );
    assert!(
        checked.ends_with("the kernel asks trees alone\n"),
        "{checked}"
    );
    let shown = done(&["model", "show", &model]);
    assert!(
        shown.contains("\n  flow.v1/fwd_payload_mean  double\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("\nclasses\n  benign\n  flood\n  scan\n"),
        "{shown}"
    );
    let account = done(&[
        "score",
        &capture,
        "--model",
        &model,
        "-o",
        &from_capture,
        "--json",
    ]);
    let account: Value = serde_json::from_str(&account).unwrap();
    assert_eq!(account["unscored"], 0);
    done(&["pcap", &capture, "-o", &rows]);
    done(&["score", &rows, "--model", &model, "-o", &from_rows]);
    let scored = lines(&from_capture);
    assert_eq!(scored, lines(&from_rows));
    assert_eq!(account["rows"], scored.len());
    assert!(scored.iter().all(|row| row["class"].is_string()));
    let compiled = file("network.json");
    let live = ["live", "lo", "--datapath", "xdp-generic", "-o", &compiled];
    let [compile, kernel] = [
        lowroad(&["model", "compile", &model, "-o", &compiled]),
        lowroad(&[&live[..], &["--model", &model]].concat()),
    ];
    for refused in [compile, kernel] {
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            said.contains("trees are what is compiled, and what the kernel asks"),
            "{said}"
        );
        assert_eq!(refused.status.code(), Some(2), "{said}");
    }
    let damaged = file("damaged.toml");
    let text = fs::read_to_string(&model).unwrap();
    fs::write(&damaged, text.replace("network-3.onnx", "mix.pcap")).unwrap();
    let refused = lowroad(&["score", &capture, "--model", &damaged, "-o", &from_rows]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("mix.pcap: is not ONNX that can be read"),
        "{said}"
    );
    assert_eq!(refused.status.code(), Some(2), "{said}");
}

#[test]
fn the_example_blocks_a_scan_and_lets_other_traffic_pass() {
    if !require::root() {
        return;
    }
    let output = Command::new("python3")
        .arg(Path::new(HERE).join("../../examples/scan-detector/run.py"))
        .arg(env!("CARGO_BIN_EXE_lowroad"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let told: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let (without, blocked) = (&told["without"], &told["blocked"]);
    // The capture's own flows are known, so nearly all of them are told apart; of the others, most are.
    for (classes, share) in [(&told["scored"], 99), (&blocked["classes"], 95)] {
        for kind in ["benign", "scan", "flood"] {
            let flows = classes[kind].as_object().unwrap().values();
            let all: u64 = flows.map(|flows| flows.as_u64().unwrap()).sum();
            let right = classes[kind][kind].as_u64().unwrap_or(0);
            assert!(all >= 20, "{text}");
            assert!(right * 100 >= all * share, "{kind}: {text}");
        }
    }
    let probes = without["probes"].as_u64().unwrap();
    assert_eq!(without["probes_answered"], probes, "{text}");
    let answered = blocked["probes_answered"].as_u64().unwrap();
    assert!(answered * 20 <= probes, "{text}");
    assert_eq!(without["requests_answered"], without["requests"], "{text}");
    let answered = blocked["requests_answered"].as_u64().unwrap();
    assert!(
        answered * 20 >= blocked["requests"].as_u64().unwrap() * 19,
        "{text}"
    );
    let dropped = told["model"]["packets"]["drop"].as_u64().unwrap();
    assert!(dropped >= probes, "{text}");
}
