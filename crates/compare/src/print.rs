//! Results on standard output, everything else on standard error.
//!
//! A reader that stops early (`lowroad compare --list | head`) is not a failure: the run goes on, and its
//! record is kept.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};

use anyhow::{Context, Result};

/// Prints a line of a result.
pub(crate) fn line(text: Arguments<'_>) -> Result<()> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a line for whoever watches.
pub(crate) fn note(text: Arguments<'_>) {
    // Nothing that runs depends on being watched.
    let _ = writeln!(stderr(), "{text}");
}
