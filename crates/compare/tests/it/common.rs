//! The real `lowroad-compare`, and what it leaves in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::require::{Class, skip};

/// How long another experiment on this machine may take before ours begins.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Options for one block in a known order. Other tests run at the same time: another attempt at a trial would
/// be disturbed as well.
pub(crate) const ONE_BLOCK: [&str; 6] = ["--blocks", "1", "--attempts", "1", "--seed", "5"];

/// The binary, with `words` after it.
pub(crate) fn lowroad(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad-compare"));
    command.args(words);
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs an experiment once no other one runs: two would be refused.
pub(crate) fn alone(run: impl Fn() -> Output) -> Output {
    // Experiments of tests queue here; any other is waited for below.
    let queue = fs::File::open(env!("CARGO_TARGET_TMPDIR")).unwrap();
    queue.lock().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let output = run();
        let said = stderr(&output);
        if output.status.success() || !said.contains("another experiment is running") {
            return output;
        }
        assert!(Instant::now() < deadline, "{said}");
        // It is given back when that one ends. Shared, and let go of at once: the next run takes it.
        let held = fs::File::open("/run/lowroad/compare.lock").unwrap();
        held.lock_shared().unwrap();
    }
}

/// Panics, with what it said, unless it ended well.
pub(crate) fn succeeded(output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        stdout(output),
        stderr(output)
    );
}

/// The lines of a record, the header first.
pub(crate) fn record(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("record.jsonl")).unwrap_or_default();
    // The last line may be half written yet.
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn path(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

/// The text of a shipped experiment with these loads, or with all where none is given. `duration` maps the text of a
/// load to its duration. The section of `--quick` is left out.
pub(crate) fn shipped(
    name: &str,
    loads: &[usize],
    duration: impl Fn(&str) -> &'static str,
) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
    let (text, _quick) = text.split_once("[quick]").unwrap();
    let (before, questions) = text.split_once("[[question]]").unwrap();
    let mut parts = before.split("[[load]]");
    let mut small = parts.next().unwrap().to_owned();
    for (_, load) in parts
        .enumerate()
        .filter(|(number, _)| loads.is_empty() || loads.contains(number))
    {
        small += "[[load]]";
        for line in load.lines() {
            small += &match line.split_once(" = ") {
                Some(("duration", _)) => format!("duration = {:?}\n", duration(load)),
                _ => format!("{line}\n"),
            };
        }
    }
    // A class names loads by their place, which is another now.
    let questions = questions.split("[[question.class]]").next().unwrap();
    format!("{small}[[question]]{questions}")
}

/// The program that experiments start beside `lowroad-compare`; the skip is reported where it is missing.
pub(crate) fn program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_lowroad-compare")).with_file_name("lowroad");
    if !program.is_file() {
        skip(Class::Core, "lowroad is not built: cargo build -p lowroad");
        return None;
    }
    Some(program)
}
