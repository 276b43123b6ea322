//! Models in ONNX by the real binary: where it finds the program that evaluates them, and what becomes of rows when
//! that program is missing or ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sys::require::{self, Class};
use tempfile::TempDir;

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
const EVALUATOR: &str = "lowroad-onnx";
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../onnx/tests/it/saved/network-3.toml"
);
const TREES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../features/tests/it/model/saved/xgboost-3.toml"
);

/// The evaluator of this build; reports the skip when there is none.
pub(crate) fn evaluator() -> Option<PathBuf> {
    let program = Path::new(LOWROAD).with_file_name(EVALUATOR);
    if program.is_file() {
        return Some(program);
    }
    let what = format!("{} is missing: cargo build", program.display());
    require::skip(Class::Core, &what);
    None
}

/// A folder with `lowroad` alone.
fn alone() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::hard_link(LOWROAD, folder.path().join("lowroad")).unwrap();
    folder
}

/// `lowroad features model check` by the program in a folder, with another one as `PATH`.
fn check(folder: &Path, model: &str, path: &Path) -> Output {
    Command::new(folder.join("lowroad"))
        .args(["features", "model", "check", model])
        .env("PATH", path)
        .output()
        .unwrap()
}

#[test]
fn a_missing_evaluator_is_named_with_a_remedy() {
    let (folder, empty) = (alone(), tempfile::tempdir().unwrap());
    let output = check(folder.path(), MODEL, empty.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(
        said,
        "cannot run here:\n  network-3  needs lowroad-onnx, which evaluates ONNX models  \
         build it with `cargo build --release --bin lowroad-onnx`, or install the one of this version beside lowroad\n"
    );
    let rows = folder.path().join("rows.csv");
    let capture = folder.path().join("mix.pcap");
    fs::write(&capture, loadgen::mix::write(Vec::new(), 100, 7).unwrap()).unwrap();
    let output = Command::new(folder.path().join("lowroad"))
        .args(["features", "score", "--model", MODEL, "-o"])
        .args([&rows, &capture])
        .env("PATH", empty.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(!rows.exists());
    let trees = check(folder.path(), TREES, empty.path());
    assert_eq!(trees.status.code(), Some(0), "trees need no evaluator");
}

#[test]
fn the_evaluator_is_found_beside_and_in_path() {
    let Some(program) = evaluator() else { return };
    let (folder, empty) = (alone(), tempfile::tempdir().unwrap());
    let elsewhere = program.parent().unwrap();
    let by_path = check(folder.path(), MODEL, elsewhere);
    assert_eq!(by_path.status.code(), Some(0));
    // Another program in PATH is not asked where one is beside.
    symlink("/bin/false", empty.path().join(EVALUATOR)).unwrap();
    let refused = check(folder.path(), MODEL, empty.path());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("ended before it answered"), "{said}");
    let link = tempfile::tempdir().unwrap();
    symlink(LOWROAD, link.path().join("lowroad")).unwrap();
    let beside = check(link.path(), MODEL, empty.path());
    assert_eq!(beside.status.code(), Some(0));
}

/// The process that runs this file.
fn process(program: &Path) -> Option<Pid> {
    let runs = |path: PathBuf| fs::read_link(path.join("exe")).is_ok_and(|found| found == program);
    let mut processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let process = processes.find(|entry| runs(entry.path()))?;
    let number = process.file_name().to_str()?.parse().ok()?;
    Some(Pid::from_raw(number))
}

#[test]
fn an_evaluator_killed_in_a_run_ends_it() {
    let Some(built) = evaluator() else { return };
    let folder = alone();
    let program = folder.path().join(EVALUATOR);
    fs::hard_link(built, &program).unwrap();
    let mut lowroad = Command::new(folder.path().join("lowroad"))
        .args(["features", "score", "-", "--model", MODEL])
        .args(["--idle-timeout", "10ms", "-o", "-", "--format", "jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = lowroad.stdin.take().unwrap();
    let mut rows = BufReader::new(lowroad.stdout.take().unwrap());
    let capture = loadgen::mix::write(Vec::new(), 60_000, 7).unwrap();
    let (killed, is_killed) = mpsc::channel();
    let feed = thread::spawn(move || {
        let (first, second) = capture.split_at(capture.len() / 2);
        // The first rows come out before all of this is read, and after the error nobody reads the rest.
        let _unread = input.write_all(first);
        is_killed.recv().unwrap();
        let _unread = input.write_all(second);
    });
    let mut written = String::new();
    rows.read_line(&mut written).unwrap();
    let evaluator = process(&fs::canonicalize(&program).unwrap()).unwrap();
    kill(evaluator, Signal::SIGKILL).unwrap();
    killed.send(()).unwrap();
    rows.read_to_string(&mut written).unwrap();
    let output = lowroad.wait_with_output().unwrap();
    feed.join().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(EVALUATOR))
        .collect();
    assert_eq!(errors.len(), 1, "{said}");
    let why = "which evaluates the model network-3, ended early (signal: 9 (SIGKILL))";
    assert!(
        errors[0].starts_with("error: ") && errors[0].contains(why),
        "{said}"
    );
    // Rows with scores that were written before are whole.
    for row in written.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        assert!(row["class"].is_string(), "{row}");
    }
    assert!(process(&fs::canonicalize(&program).unwrap()).is_none());
}
