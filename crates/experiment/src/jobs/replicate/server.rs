//! The application that answers requests, in Python as the origin's was.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use datapath::Missing;
use testbed::Child;

use super::arm::Arm;
use super::load::Application;

const FILE: &str = include_str!("../../../../../experiments/applications/file.py");
const KEEP_ALIVE: &str = include_str!("../../../../../experiments/applications/keep_alive.py");
const SQLITE: &str = include_str!("../../../../../experiments/applications/sqlite.py");

/// A running application; it ends when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

pub(super) fn check() -> Result<(), Missing> {
    let found = Command::new(python())
        .args(["-c", "import flask"])
        .output()
        .is_ok_and(|output| output.status.success());
    found.then_some(()).ok_or_else(|| {
        Missing::new(
            "Flask is not installed",
            "apt-get install python3-flask, or name a python that has it in LOWROAD_PYTHON",
        )
    })
}

fn python() -> PathBuf {
    std::env::var_os("LOWROAD_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}

impl Server {
    /// Starts it with its files in `work`, and returns once it listens.
    pub(super) fn start(
        arm: Arm,
        application: Application,
        work: &Path,
        out: &Path,
    ) -> Result<Self> {
        let script = out.join("application.py");
        let text = match application {
            Application::File => FILE,
            Application::Sqlite => SQLITE,
        };
        fs::write(&script, text)?;
        // Python looks for it beside the script.
        fs::write(out.join("keep_alive.py"), KEEP_ALIVE)?;
        let errors = out.join("application.errors");
        let mut command = arm.wrap(&python(), out);
        command
            .arg(&script)
            .arg(work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        let mut child = Child::start(command).context("the application")?;
        let output = child.stdout().context("its output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().with_context(|| {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            format!("the application did not start: {}", said.trim())
        })?;
        Ok(Self { child, port })
    }

    /// All processes of its group.
    pub(super) fn pids(&self) -> Vec<u32> {
        let id = self.child.id();
        let mut pids = vec![id];
        let mut unseen = vec![id];
        while let Some(pid) = unseen.pop() {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|id| id.parse().ok());
            for child in children {
                pids.push(child);
                unseen.push(child);
            }
        }
        pids
    }
}
