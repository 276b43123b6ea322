//! Outputs of `lowroad features pcap` that somebody else has to do with: a reader that has seen enough, and
//! another run.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::relay_server::{errors, lowroad};

fn features(verb: &str, arguments: &[&str]) -> Command {
    let mut command = lowroad();
    command.args(["features", verb]).args(arguments);
    command
}

/// A capture whose rows are more than a pipe holds.
fn capture(folder: &Path) -> String {
    let path = folder.join("capture.pcap");
    fs::write(&path, loadgen::mix::write(Vec::new(), 40_000, 3).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Reads a little of the output, closes it, and has the program end.
fn close_early(mut command: Command) {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 10]).unwrap();
    drop(output);
    let ended = child.wait_with_output().unwrap();
    let said = errors(&ended);
    assert_eq!(ended.status.code(), Some(0), "{command:?}: {said}");
    assert!(!said.contains("error"), "{command:?}: {said}");
}

#[test]
fn a_reader_that_closes_standard_output_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let capture = capture(folder.path());
    for format in ["csv", "jsonl", "arrow"] {
        for more in [&[][..], &["--threads", "3"], &["--schema", "packet.v1"]] {
            let mut command = features("pcap", &[&capture, "-o", "-", "--format", format]);
            command.args(more);
            close_early(command);
        }
    }
    let rows = folder.path().join("rows.csv");
    let rows = rows.to_str().unwrap();
    close_early(features("pcap", &[&capture, "-o", rows, "--pcap-out", "-"]));
}

/// Waits until a run has opened its file.
fn wait_for(child: &mut Child, path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_file_that_another_run_writes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let capture = capture(folder.path());
    let rows = folder.path().join("rows.csv");
    let out = rows.to_str().unwrap();
    let mut first = features("pcap", &["-", "-o", out]);
    let piped = first.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut first = piped.spawn().unwrap();
    wait_for(&mut first, &rows.with_extension("csv.tmp"));
    let second = features("pcap", &[&capture, "-o", out]).output().unwrap();
    let said = errors(&second);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("another run is writing this file"), "{said}");
    let mut input = first.stdin.take().unwrap();
    input.write_all(&fs::read(&capture).unwrap()).unwrap();
    drop(input);
    assert!(first.wait().unwrap().success());
    let lines = fs::read_to_string(&rows).unwrap().lines().count();
    assert!(lines > 100, "{lines}");
    let third = features("pcap", &[&capture, "-o", out]).output().unwrap();
    assert_eq!(third.status.code(), Some(0), "{}", errors(&third));
    assert_eq!(fs::read_to_string(&rows).unwrap().lines().count(), lines);
}
