//! Runs of `lowroad router`, and their results.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn router(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .arg("router")
        .args(arguments)
        .output()
        .unwrap()
}

/// What a command prints that must succeed.
pub(crate) fn done(arguments: &[&str]) -> String {
    let output = router(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&[arguments, &["--json"]].concat())).unwrap()
}

/// The error of a command that must refuse its input: `lines` lines.
pub(crate) fn refused(arguments: &[&str], lines: usize) -> String {
    let output = router(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), lines, "{said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    said
}

pub(crate) fn file(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path.display().to_string()
}
