//! The capture under test: the real binary, as a user would start it.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testbed::{Child, Host};

use super::arm;
use super::tree::{self, Tree};
use crate::jobs::TrialSpec;
use crate::jobs::program::lowroad_command;
use crate::plan::Link;

/// How long a capture may take to start, and to write what it has.
const PATIENCE: Duration = Duration::from_secs(30);
/// Before everything else that wants to run beside it.
const NICENESS: i32 = -20;

/// What a capture writes.
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
    /// Where it prints its account.
    account: PathBuf,
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
        let (output, errors) = (folder.join("account"), folder.join("errors"));
        let ready = folder.join("ready");
        let notified = UnixDatagram::bind(&ready)?;
        notified.set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut command = lowroad_command(&["features", "--json", "live", interface]);
        let (datapath, settings) = arm::of(spec.arm);
        command.args(["--datapath", datapath]).args(settings);
        if let Some(tree) = Tree::of(spec.arm) {
            let model = folder.join(tree::FILE);
            fs::write(&model, tree.model()?)?;
            command.arg("--model").arg(model).arg("--shadow");
        }
        match rows {
            Rows::File => command
                .arg("-o")
                .arg(folder.join(tree::ROWS))
                .stdout(File::create(&output)?),
            Rows::Pipe => command
                .args(["--schema", "ipfix", "--format", "jsonl", "-o", "-"])
                .stdout(Stdio::piped()),
        };
        command.args(options(spec, rows));
        let child = host.spawn({
            command
                .env("NOTIFY_SOCKET", &ready)
                .stdin(Stdio::null())
                .stderr(File::create(&errors)?);
            command
        })?;
        let mut capture = Self {
            child,
            account: match rows {
                Rows::File => output,
                Rows::Pipe => errors.clone(),
            },
            errors,
        };
        capture.wait(&notified)?;
        for task in capture.tasks()? {
            sys::sched::nice(task, NICENESS).context("a capture's priority")?;
        }
        Ok(capture)
    }

    fn wait(&mut self, notified: &UnixDatagram) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut said = [0; 256];
        while notified.recv(&mut said).is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the capture did not start: {}", self.said());
            }
        }
        Ok(())
    }

    fn said(&self) -> String {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        said.trim().to_owned()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its rows, where they come through a pipe.
    pub(super) fn rows(&mut self) -> Result<ChildStdout> {
        self.child.stdout().context("the rows are piped")
    }

    /// Its threads.
    pub(super) fn tasks(&self) -> Result<Vec<u32>> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid()))?;
        let ids = entries.flatten().map(|entry| entry.file_name());
        Ok(ids.filter_map(|id| id.to_str()?.parse().ok()).collect())
    }

    /// The most memory it has had, and what its BPF maps take, in bytes.
    pub(super) fn memory(&self) -> Result<u64> {
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
        Ok(own + maps.values().sum::<u64>())
    }

    /// Ends it as a user would, and returns its account.
    pub(super) fn stop(mut self) -> Result<Value> {
        let status = self.child.stop(PATIENCE)?;
        let text = fs::read_to_string(&self.account)?;
        let Some(at) = text.find('{') else {
            bail!("the capture ended with {status}: {}", self.said());
        };
        serde_json::from_str(&text[at..]).context("the account of a capture")
    }
}

/// What comes in over the link are copies that a mirror port sends, addressed to another machine.
fn options(spec: &TrialSpec<'_>, rows: Rows) -> Vec<String> {
    let mut options = Vec::new();
    if rows == Rows::File && !spec.load.options.contains_key("schema") {
        options.extend(["--schema", "nfstream.v1"].map(str::to_owned));
    }
    match (spec.load.link, arm::is_socket(spec.arm)) {
        (Link::Loopback, _) => {}
        (Link::Direct | Link::Bridge, true) => options.push("--promiscuous".to_owned()),
        (Link::Direct | Link::Bridge, false) => options.push("--tap".to_owned()),
    }
    for (key, value) in &spec.load.options {
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
