//! Hands comparison over to lowroad-compare: the production binary carries no test bed.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;

use crate::exit::Failure;

const PROGRAM: &str = "lowroad-compare";

/// What it prints for a `verb` of its own.
pub(crate) fn says(verb: &str) -> std::io::Result<String> {
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let output = Command::new(&program).arg(verb).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(std::io::Error::other(output.status.to_string())),
    }
}

/// Becomes `lowroad-compare` with our own arguments, which both parse alike; returns only if that did
/// not work.
pub(crate) fn exec() -> Failure {
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .exec();
    Failure::Failed(anyhow!(
        "comparison is done by {PROGRAM}, which is neither beside lowroad nor in PATH ({error}); \
         build it with: cargo build --release --bin {PROGRAM}"
    ))
}

fn beside_us() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    program.is_file().then_some(program)
}
