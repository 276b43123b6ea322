//! The relay under test: the real binary, as a user would start it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use control::Client;
use testbed::{Child, Host};

use crate::jobs::program::lowroad_command;

/// A running `lowroad relay serve`; it ends when dropped.
#[derive(Debug)]
pub(super) struct RelayProcess {
    child: Child,
    control: PathBuf,
}

impl RelayProcess {
    /// Starts the relay and waits for its ready line.
    pub(super) fn start(host: &Host, folder: &Path, config: &str) -> Result<Self> {
        let path = folder.join("relay.toml");
        std::fs::write(&path, config)?;
        let errors = folder.join("relay.stderr");
        let mut command = lowroad_command(&["relay", "serve", "--config"]);
        command
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&errors)?);
        let mut child = host.spawn(command)?;
        let output = child.stdout().context("the relay's output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if !line.starts_with("ready") {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            bail!("the relay did not start: {}", said.trim());
        }
        Ok(Self {
            child,
            control: folder.join("relay.sock"),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to its control socket.
    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.control)?)
    }
}
