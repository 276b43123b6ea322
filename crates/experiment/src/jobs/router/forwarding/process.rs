//! The router under test: the real binary, as a user would start it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use testbed::{Child, Host};

use crate::jobs::program::lowroad_command;

/// A running `lowroad router run`; it ends when dropped.
#[derive(Debug)]
pub(super) struct RouterProcess {
    child: Child,
    /// What it said once it routed.
    pub(super) ready: String,
}

impl RouterProcess {
    /// Starts a router by XDP of what comes on a device, and returns once it routes.
    pub(super) fn start(
        host: &Host,
        interface: &str,
        rules: Option<&Path>,
        folder: &Path,
    ) -> Result<Self> {
        let errors = folder.join("router.stderr");
        let mut command = lowroad_command(&["router", "run", "--datapath", "xdp"]);
        command
            .args(["--interface", interface, "--control"])
            .arg(folder.join("router.sock"));
        if let Some(rules) = rules {
            command.arg("--rules").arg(rules);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        let mut child = host.spawn(command)?;
        let output = child.stdout().context("the router's output is piped")?;
        let mut ready = String::new();
        BufReader::new(output).read_line(&mut ready)?;
        if !ready.starts_with("ready") {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            bail!("the router did not start: {}", said.trim());
        }
        Ok(Self {
            child,
            ready: ready.trim().to_owned(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}
