//! The router under test: the real binary, as a user would start it, where its host is.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testbed::{Child, Host, Stream};

use crate::program::Lowroad;

/// How long it may take to start: it takes in the whole table.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running `lowroad router run`; it ends when dropped.
#[derive(Debug)]
pub(super) struct RouterProcess {
    child: Child,
    /// The line that it printed once it routed.
    pub(super) ready: String,
}

impl RouterProcess {
    /// Starts a router by XDP of what comes on a device, and returns once it routes.
    pub(super) fn start(
        lowroad: &Lowroad,
        host: &Host,
        interface: &str,
        rules: Option<&Path>,
        folder: &Path,
    ) -> Result<Self> {
        let errors = folder.join("router.stderr");
        let program = lowroad
            .payload(&[])
            .args(arguments(interface, rules, folder))
            .works_in(folder)
            .with_ready_notification()
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

/// The arguments of a router.
pub(super) fn arguments(interface: &str, rules: Option<&Path>, folder: &Path) -> Vec<OsString> {
    let words = [
        "router",
        "run",
        "--datapath",
        "xdp",
        "--interface",
        interface,
    ];
    let words = words.into_iter().map(OsString::from);
    let control = ["--control".into(), folder.join("router.sock").into()];
    let rules = rules.map(|rules| ["--rules".into(), rules.into()]);
    words
        .chain(control)
        .chain(rules.into_iter().flatten())
        .collect()
}
