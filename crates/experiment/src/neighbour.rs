//! A process that has no part in a trial and takes CPU time beside it: trials it meets must be flagged.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use sys::child::die_with_parent;

/// A process that never rests; it ends when dropped, or with the thread that started it.
#[derive(Debug)]
pub(crate) struct Neighbour(Child);

impl Neighbour {
    /// On one CPU alone.
    pub(crate) fn start(cpu: usize) -> Result<Self> {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"])
            .stdin(Stdio::null());
        let child = die_with_parent(&mut command).spawn().context("taskset")?;
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // An error is its having ended by itself, which is all that is wanted.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}
