//! Other builds of `lowroad` as arms: whether a file is one, and which.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::program::{Lowroad, file_hash};

/// The beginning of the output of `lowroad --version`.
const VERSION_PREFIX: &str = "lowroad ";

/// How long a build may take to say what it is.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A build of `lowroad` that runs one of the job's arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildArm {
    pub(crate) lowroad: Lowroad,
    /// The job's arm that it runs.
    pub(crate) arm: String,
    /// As the report states it.
    pub(crate) identity: report::record::Build,
}

/// The part of `lowroad doctor --json` that tells which datapaths a build has.
#[derive(Deserialize)]
struct Diagnosis {
    checks: Vec<Check>,
}

#[derive(Deserialize)]
struct Check {
    group: String,
    name: String,
}

impl BuildArm {
    /// The build at this path, for the job's arm.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub(crate) fn open(path: &Path, arm: &str) -> Result<Self, String> {
        let shown = path.display();
        let found = fs::metadata(path).map_err(|error| {
            format!("{shown}: {error}; name the file of a build, such as target/release/lowroad")
        })?;
        if !found.is_file() {
            return Err(format!(
                "{shown} is not a file: name the program in it, such as {}",
                path.join("lowroad").display()
            ));
        }
        if found.permissions().mode() & 0o111 == 0 {
            return Err(format!("{shown} is not executable; run: chmod +x {shown}"));
        }
        let path = path
            .canonicalize()
            .map_err(|error| format!("{shown}: {error}"))?;
        let lowroad = Lowroad::at(&path);
        let version = version(&lowroad).map_err(|what| {
            format!("{shown} is not lowroad: {what}; name the file of a build, such as target/release/lowroad")
        })?;
        let hash = file_hash(&path).map_err(|error| format!("{shown}: {error}"))?;
        Ok(Self {
            identity: report::record::Build {
                path: path.display().to_string(),
                version,
                bytes: found.len(),
                hash,
                arm: arm.to_owned(),
            },
            lowroad,
            arm: arm.to_owned(),
        })
    }

    /// Whether the build knows a datapath of a job.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn has_datapath(&self, job: &str, datapath: &str) -> Result<(), String> {
        let output = run(self.lowroad.command(&["doctor", "--json"]))?;
        let diagnosis: Diagnosis = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("its doctor --json cannot be read: {error}"))?;
        let mut checks = diagnosis.checks.iter();
        match checks.any(|check| check.group == job && check.name == datapath) {
            true => Ok(()),
            false => Err(format!("it has no datapath {datapath:?} of {job}")),
        }
    }

    /// Whether the build accepts a command that changes nothing.
    ///
    /// # Errors
    /// The first line that it printed.
    pub(crate) fn accepts(&self, arguments: &[std::ffi::OsString]) -> Result<(), String> {
        let mut command = self.lowroad.command(&[]);
        command.args(arguments);
        let output = run(command)?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| !line.trim().is_empty());
        Err(line.unwrap_or("it printed nothing").trim().to_owned())
    }
}

fn version(lowroad: &Lowroad) -> Result<String, String> {
    let output = run(lowroad.command(&["--version"]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim();
    match output.status.success() && line.starts_with(VERSION_PREFIX) {
        true => Ok(line.to_owned()),
        false => Err(format!("--version printed {line:?}")),
    }
}

/// Runs a command that should end by itself; a file that is not `lowroad` may do anything.
fn run(mut command: Command) -> Result<Output, String> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(TIMEOUT);
    if output.is_err() {
        // It has not been waited for yet: its id is still its own.
        let _gone = kill(pid, Signal::SIGKILL);
        let _output = waiter.join();
    }
    match output {
        Ok(output) => output.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it did not end within {} s", TIMEOUT.as_secs())),
    }
}
