//! A run of the client, and the noise meanwhile.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use probes::occupancy::OccupancyProbe;
use testbed::Child;

use crate::noise::Watch;
use crate::outcome::Outcome;

/// A search may take this many times its duration, if each of its steps is lossy.
const SEARCH_FACTOR: u32 = 12;
/// A client that takes this much longer than its test is ended.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(2);

/// The arguments of a run of the client.
#[derive(Debug)]
pub(super) struct ClientRun<'a> {
    pub(super) foreign: &'a OccupancyProbe,
    /// The CPUs that the trial may use.
    pub(super) cpus: Vec<usize>,
    /// The processes of the trial that are there already.
    pub(super) own: Vec<u32>,
    /// The duration of the test.
    pub(super) duration: Duration,
    /// Whether it searches for a rate, which takes longer.
    pub(super) search: bool,
    /// The file of its standard error.
    pub(super) errors: PathBuf,
}

impl ClientRun<'_> {
    /// Starts the client by `start`, calls `meanwhile` while it runs, and returns its output.
    pub(super) fn run(
        mut self,
        mut command: Command,
        start: impl FnOnce(Command) -> Result<Child>,
        meanwhile: impl FnOnce(&mut Outcome) -> Result<()>,
        outcome: &mut Outcome,
    ) -> Result<String> {
        let noise = Watch::start_on(self.cpus, self.foreign, &self.own)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(&self.errors)?);
        let mut client = start(command)?;
        self.own.push(client.id());
        let mut output = client.stdout().context("the client's output is piped")?;
        let reader = thread::spawn(move || {
            let mut said = String::new();
            output.read_to_string(&mut said).map(|_length| said)
        });
        meanwhile(outcome)?;
        let times = if self.search { SEARCH_FACTOR } else { 1 };
        let status = end(&mut client, self.duration * times + TIMEOUT_MARGIN)?;
        noise.end(&self.own, outcome)?;
        let said = reader.join();
        let said = said.map_err(|_| anyhow!("the reader panicked"))??;
        if status.success() {
            return Ok(said);
        }
        let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
        Err(ClientError::new(status, &errors, &said).into())
    }
}

fn end(client: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = client.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            bail!("the client has not ended after {} s", limit.as_secs());
        }
        thread::sleep(TICK);
    }
}

/// The error of a client that failed, on one line. Some tools print it to standard output.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ClientError(String);

impl ClientError {
    fn new(status: ExitStatus, errors: &str, said: &str) -> Self {
        let errors = errors.trim();
        let errors = errors.strip_prefix("error: ").unwrap_or(errors);
        let words = match errors.is_empty() {
            true => said.trim(),
            false => errors,
        };
        let lines: Vec<&str> = words.lines().map(str::trim).collect();
        Self(match lines.is_empty() {
            true => format!("the client printed nothing: {status}"),
            false => lines.join("; "),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_failure_is_one_line_of_what_was_said_of_it() {
        let said =
            |errors, said| ClientError::new(ExitStatus::from_raw(256), errors, said).to_string();
        let gone = "error: 192.0.2.2:7411 is gone\n";
        assert_eq!(said(gone, "{\"mbps\": 1}\n"), "192.0.2.2:7411 is gone");
        assert_eq!(said("one\n two\n", ""), "one; two");
        assert_eq!(
            said("", "{\"error\": \"refused\"}"),
            "{\"error\": \"refused\"}"
        );
        assert_eq!(said("\n", ""), "the client printed nothing: exit status: 1");
    }
}
