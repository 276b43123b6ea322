//! The capture under test: the real binary, as a user would start it, where its host is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testbed::{Child, Host, Stream};

use super::arm;
use super::tree::{self, Tree};
use crate::jobs::features::load::{Link, Load, TrialSpec};

/// The time that a capture has to start, and to write its last rows.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The capture runs before everything else on its CPU.
const NICENESS: i32 = -20;

/// The output of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// A Parquet file in the trial's folder.
    File,
    /// JSON lines, to whoever reads its standard output.
    Pipe,
}

/// A running `lowroad features live`; it ends when dropped.
#[derive(Debug)]
pub(super) struct Capture {
    child: Child,
    rows: Rows,
    /// Whether it runs in a guest: then its process is the emulator's or hypervisor's.
    guest: bool,
    errors: PathBuf,
}

impl Capture {
    /// Starts a capture, and returns once it captures.
    pub(super) fn start(
        host: &Host,
        interface: &str,
        folder: &Path,
        spec: &TrialSpec<'_>,
        rows: Rows,
    ) -> Result<Self> {
        let errors = folder.join("errors");
        let program = spec
            .lowroad
            .payload(&[])
            .args(arguments((spec.arm, spec.load), interface, folder, rows)?)
            .works_in(folder)
            .with_ready_notification()
            .stdout(Stream::Piped)
            .stderr(File::create(&errors)?);
        let mut capture = Self {
            child: host.start(program)?,
            rows,
            guest: host.guest().is_some(),
            errors,
        };
        if !capture.child.wait_ready(TIMEOUT)? {
            bail!("the capture did not start: {}", capture.error_output());
        }
        for task in capture.tasks()? {
            sys::sched::nice(task, NICENESS).context("a capture's priority")?;
        }
        Ok(capture)
    }

    fn error_output(&self) -> String {
        let text = fs::read_to_string(&self.errors).unwrap_or_default();
        text.trim().to_owned()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its rows, where they come through a pipe.
    pub(super) fn rows(&mut self) -> Result<ChildStdout> {
        self.child.stdout().context("the rows are piped")
    }

    /// Its threads; of a capture in a guest those of the process that is the guest here.
    pub(super) fn tasks(&self) -> Result<Vec<u32>> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid()))?;
        let ids = entries.flatten().map(|entry| entry.file_name());
        Ok(ids.filter_map(|id| id.to_str()?.parse().ok()).collect())
    }

    /// The most memory it has had, and what its BPF maps take, in bytes; not known of what is in a guest.
    pub(super) fn memory(&self) -> Result<Option<u64>> {
        if self.guest {
            return Ok(None);
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let own = field(&status, "VmHWM:").context("no VmHWM of the capture")? * 1024;
        let mut maps = std::collections::BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{}/fdinfo", self.pid()))?.flatten() {
            // A descriptor may be closed meanwhile.
            let info = fs::read_to_string(entry.path()).unwrap_or_default();
            if let Some((id, bytes)) = field(&info, "map_id:").zip(field(&info, "memlock:")) {
                maps.insert(id, bytes);
            }
        }
        Ok(Some(own + maps.values().sum::<u64>()))
    }

    /// Ends it as a user would, and returns its account.
    pub(super) fn stop(mut self) -> Result<Value> {
        let status = self.child.stop(TIMEOUT)?;
        let text = match self.rows {
            Rows::File => {
                let mut text = String::new();
                let mut output = self.child.stdout().context("the account is piped")?;
                output.read_to_string(&mut text)?;
                text
            }
            // The rows have its standard output.
            Rows::Pipe => fs::read_to_string(&self.errors)?,
        };
        let Some(at) = text.find('{') else {
            bail!("the capture ended with {status}: {}", self.error_output());
        };
        serde_json::from_str(&text[at..]).context("the account of a capture")
    }
}

/// The arguments of a capture. A model that the arm asks is written to the folder.
pub(super) fn arguments(
    (arm, load): (&str, &Load),
    interface: &str,
    folder: &Path,
    rows: Rows,
) -> Result<Vec<OsString>> {
    let (datapath, settings) = arm::of(arm);
    let words = [
        "features",
        "--json",
        "live",
        interface,
        "--datapath",
        datapath,
    ];
    let mut arguments: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    arguments.extend(settings.into_iter().map(OsString::from));
    if let Some(tree) = Tree::of(arm) {
        let model = folder.join(tree::FILE);
        fs::write(&model, tree.model()?)?;
        arguments.extend(["--model".into(), model.into(), "--shadow".into()]);
    }
    match rows {
        Rows::File => arguments.extend(["-o".into(), folder.join(tree::ROWS).into()]),
        Rows::Pipe => {
            let output = ["--schema", "ipfix", "--format", "jsonl", "-o", "-"];
            arguments.extend(output.map(OsString::from));
        }
    }
    arguments.extend(options(arm, load, rows).into_iter().map(OsString::from));
    Ok(arguments)
}

/// The options of a capture. Packets on the link are copies of a mirror port, addressed to another machine.
fn options(arm: &str, load: &Load, rows: Rows) -> Vec<String> {
    let mut options = Vec::new();
    if rows == Rows::File && !load.options.contains_key("schema") {
        options.extend(["--schema", "nfstream.v1"].map(str::to_owned));
    }
    if load.link != Link::Loopback {
        // A card that knows its address keeps others' frames back, as a virtual machine's does.
        options.push("--promiscuous".to_owned());
        if !arm::is_socket(arm) {
            options.push("--tap".to_owned());
        }
    }
    for (key, value) in &load.options {
        options.push(format!("--{key}"));
        options.push(match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        });
    }
    options
}

/// The number after a word, whatever unit follows.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
