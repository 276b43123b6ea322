//! `lowroad features bench` as people run it: that it does the product's work, and keeps what it has.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use features::kernel::Subject;
use features::schema::SCHEMAS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PACKETS: u64 = 3000;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command.args(["features", "bench"]).args(arguments);
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn arm<'a>(told: &'a Value, name: &str) -> &'a Value {
    let arms = told["arms"].as_array().unwrap();
    let found = arms.iter().find(|arm| arm["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {told:#}"))
}

/// Rows that `features pcap` makes of the file.
fn rows(capture: &Path, schema: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "pcap", "--json", "--schema", schema])
        .args(["-o", "/dev/null", "--format", "csv"])
        .arg(capture)
        .output()
        .unwrap();
    json(&output)["rows"].clone()
}

#[test]
fn every_schema_makes_the_rows_of_the_product_in_every_round() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("mix.pcap");
    let packets = usize::try_from(PACKETS).unwrap();
    fs::write(
        &capture,
        loadgen::mix::write(Vec::new(), packets, 1).unwrap(),
    )
    .unwrap();
    let all = SCHEMAS.iter().map(|schema| schema.name);
    let all = all.collect::<Vec<_>>().join(",");
    let more = ["--rounds", "2", "--json", "--schema", &all];
    let told = json(&bench(&more).arg(&capture).output().unwrap());
    assert_eq!(told["packets"], PACKETS);
    assert_eq!(told["arms"].as_array().unwrap().len(), SCHEMAS.len());
    for schema in SCHEMAS {
        let arm = arm(&told, schema.name);
        assert_eq!(arm["rows"], rows(&capture, schema.name), "{}", schema.name);
        let rounds = arm["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2, "{}", schema.name);
        for round in rounds {
            assert_eq!(round["packets"], PACKETS, "{}", schema.name);
            assert!(round["cpu_ns"].as_u64() > Some(0), "{}", schema.name);
        }
    }
}

#[test]
fn every_program_of_the_kernel_runs_on_every_packet() {
    if !sys::require::root() {
        return;
    }
    let programs = Subject::ALL.map(Subject::name);
    let (packets, programs) = (PACKETS.to_string(), programs.join(","));
    let more = [
        "--packets",
        &packets,
        "--rounds",
        "1",
        "--program",
        &programs,
    ];
    let told = json(&bench(&more).arg("--json").output().unwrap());
    for subject in Subject::ALL {
        let round = &arm(&told, subject.name())["rounds"][0];
        assert_eq!(round["packets"], PACKETS, "{}", subject.name());
        assert!(round["cpu_ns"].as_u64() > Some(0), "{}", subject.name());
    }
    let table = bench(&more).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    for subject in Subject::ALL {
        let line = |line: &str| line.starts_with(&format!("{} ", subject.name()));
        assert!(table.lines().any(line), "{}: {table}", subject.name());
    }
}

#[test]
fn a_signal_ends_it_with_the_rounds_that_it_has() {
    let more = ["--packets", "20000", "--rounds", "1000000", "--json"];
    let mut child = bench(&more)
        .args(["--schema", "cic.v1,nprint.v1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Kept until the end: it goes on telling.
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().starts_with("round 2/")));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = json(&output);
    for schema in ["cic.v1", "nprint.v1"] {
        let arm = arm(&told, schema);
        assert!(!arm["rounds"].as_array().unwrap().is_empty());
        assert!(arm["ns_per_packet"]["median"].as_f64() > Some(0.0));
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pcap");
    let writer = packet::pcap::Writer::new(Vec::new(), packet::pcap::ETHERNET).unwrap();
    fs::write(&empty, writer.finish().unwrap()).unwrap();
    let empty = empty.to_str().unwrap();
    for (arguments, says) in [
        (&["/nonexistent.pcap"][..], "/nonexistent.pcap"),
        (&[empty], "no packets"),
        (&["/etc/passwd"], "not a pcap"),
        (&["--schema", "flow.v9"], "cic.v1"),
        (&["--program", "ebpf"], "xdp-flow"),
        (&["--schema", "cic.v1", "--payload-bytes", "3"], "nprint.v1"),
    ] {
        let output = bench(arguments).output().unwrap();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
