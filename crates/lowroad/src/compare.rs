//! Executes lowroad-compare for comparison: the production binary does not link the test bed.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;

use crate::exit::Failure;

const PROGRAM: &str = "lowroad-compare";

/// The output of lowroad-compare for a verb of its own.
pub(crate) fn output(verb: &str) -> std::io::Result<String> {
    let program = sibling().unwrap_or_else(|| PROGRAM.into());
    let output = Command::new(&program).arg(verb).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(std::io::Error::other(output.status.to_string())),
    }
}

/// Executes `lowroad-compare` with the same arguments, which both programs parse alike. Returns only on
/// failure.
pub(crate) fn exec() -> Failure {
    let program = sibling().unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .exec();
    Failure::Failed(anyhow!(
        "{PROGRAM} does comparisons, and is neither beside lowroad nor in PATH ({error}); \
         build it with: cargo build --release --bin {PROGRAM}"
    ))
}

fn sibling() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    program.is_file().then_some(program)
}
