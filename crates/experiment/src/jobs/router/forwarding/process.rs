//! The router under test: the real binary, as a user would start it, where its host is.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testbed::{Child, Host, Stream};

use crate::program::payload;

/// How long it may take to start: it takes in the whole table.
const TIMEOUT: Duration = Duration::from_secs(60);

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
        let mut program = payload(&["router", "run", "--datapath", "xdp"])
            .args(["--interface", interface, "--control"])
            .args([folder.join("router.sock")]);
        if let Some(rules) = rules {
            program = program.args(["--rules".as_ref(), rules]);
        }
        let program = program
            .works_in(folder)
            .tells()
            .stdout(Stream::Piped)
            .stderr(File::create(&errors)?);
        let mut child = host.start(program)?;
        if !child.wait_ready(TIMEOUT)? {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            bail!("the router did not start: {}", said.trim());
        }
        let output = child.stdout().context("the router's output is piped")?;
        let mut ready = String::new();
        BufReader::new(output).read_line(&mut ready)?;
        Ok(Self {
            child,
            ready: ready.trim().to_owned(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}
