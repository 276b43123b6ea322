//! The real `lowroad-compare`, and what it leaves in a folder.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long another experiment on this machine may take before ours begins.
const PATIENCE: Duration = Duration::from_secs(300);

/// Of an experiment, one block in a known order. Tests run beside it: another attempt at a trial would be
/// disturbed as well.
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
    let deadline = Instant::now() + PATIENCE;
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
