//! The relay under test: the real binary, as a user would start it, where its host is.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::Client;
use serde_json::Value;
use testbed::{Child, Host, Stream};

use crate::program::Lowroad;

/// How long it may take to start.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running `lowroad relay serve`; it ends when dropped.
#[derive(Debug)]
pub(super) struct RelayProcess {
    lowroad: Lowroad,
    child: Child,
    control: PathBuf,
}

impl RelayProcess {
    /// Starts the relay and waits until it relays.
    pub(super) fn start(
        lowroad: &Lowroad,
        host: &Host,
        folder: &Path,
        config: &str,
    ) -> Result<Self> {
        let path = folder.join("relay.toml");
        fs::write(&path, config)?;
        let errors = folder.join("relay.stderr");
        let program = lowroad
            .payload(&["relay", "serve", "--config"])
            .args([&path])
            .works_in(folder)
            .with_ready_notification()
            .stdout(Stream::Null)
            .stderr(File::create(&errors)?);
        let mut child = host.start(program)?;
        if !child.wait_ready(TIMEOUT)? {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            bail!("the relay did not start: {}", said.trim());
        }
        Ok(Self {
            lowroad: lowroad.clone(),
            child,
            control: folder.join("relay.sock"),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to its control socket, where its host shares files with this machine.
    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.control)?)
    }

    /// Its counters; where files are others, by a program of that host.
    pub(super) fn counters(&self, host: &Host) -> Result<Value> {
        if host.shares_files() {
            return Ok(self.client()?.call("counters", Value::Null)?);
        }
        let program = self.lowroad.payload(&["relay", "--json", "--control"]);
        let program = program.args([&self.control]);
        let mut asked = host.start(program.args(["counters"]).stdout(Stream::Piped))?;
        let mut said = String::new();
        let mut output = asked.stdout().context("its output is piped")?;
        output.read_to_string(&mut said)?;
        asked.wait()?;
        serde_json::from_str(&said).context("the counters of a relay")
    }
}
