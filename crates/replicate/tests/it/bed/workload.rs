//! The program `statefuzz` at work on a tree, stopped at its barriers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

#[derive(Debug)]
pub(crate) struct Workload {
    process: Child,
    lines: BufReader<ChildStdout>,
    started: bool,
}

impl Workload {
    /// Starts it on the calling thread's behalf: it ends with that thread.
    pub(crate) fn start(tree: &Path, seed: u64, steps: u32, every: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statefuzz"));
        command
            .arg(tree)
            .args([seed.to_string(), steps.to_string(), every.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = sys::child::die_with_parent(&mut command).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self {
            process,
            lines,
            started: false,
        }
    }

    /// Lets it continue to its next barrier. Returns the steps until then, one per line. `None`
    /// when it has ended.
    ///
    /// # Panics
    /// When it failed.
    pub(crate) fn next(&mut self) -> Option<Vec<String>> {
        if self.started {
            let orders = self.process.stdin.as_mut().unwrap();
            orders.write_all(b"go on\n").unwrap();
        }
        self.started = true;
        let mut steps = Vec::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                let status = self.process.wait().unwrap();
                assert!(status.success(), "{status} after {steps:#?}");
                return None;
            }
            if line == "barrier\n" {
                return Some(steps);
            }
            steps.push(line.trim_end().to_owned());
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
