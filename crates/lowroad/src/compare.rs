//! Hands comparison over to lowroad-compare: the production binary carries no test bed.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;

use crate::cli::Passed;
use crate::exit::Failure;

const PROGRAM: &str = "lowroad-compare";

/// Becomes `lowroad-compare VERB ..`; returns only if that did not work.
pub(crate) fn exec(verb: &str, passed: &Passed) -> Result<(), Failure> {
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program)
        .arg(verb)
        .args(&passed.arguments)
        .exec();
    Err(Failure::Failed(anyhow!(
        "`lowroad {verb}` is done by {PROGRAM}, which is neither beside lowroad nor in PATH \
         ({error}); build it with: cargo build --release --bin {PROGRAM}"
    )))
}

fn beside_us() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    program.is_file().then_some(program)
}
