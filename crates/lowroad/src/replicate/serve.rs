//! `lowroad replicate serve`: serves a log to replicas over TCP until a signal arrives.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use process::shutdown::Shutdown;
use replicate::service::serve::Settings;
use replicate::service::{self, Progress as PartProgress};
use replicate::ship::tcp::{Error, Files, Limits, Status};
use serde_json::{Value, json};
use units::socket_address;

use crate::exit::{self, Failure, OrFail as _};

/// Interval between status reports.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Folder of the log
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Listen at this address; port 0 chooses a port
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    listen: SocketAddr,
    /// Certificate of the server (PEM)
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Key of the certificate (PEM), readable by its owner only
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Accept replicas' certificates of this authority (PEM)
    #[arg(long, value_name = "FILE")]
    clients_ca: PathBuf,
    /// Accept at most this many replicas at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().replicas)]
    replicas: usize,
    /// Send records only once they are on the log's disk, so that no replica is ahead after a power loss
    #[arg(long)]
    synced: bool,
}

impl Serve {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let server = self.settings().start().map_err(|error| match error {
            // Most likely the name was mistyped.
            service::Error::Tcp(Error::Log(error)) => Failure::Input(error.to_string()),
            other => other.into(),
        })?;
        self.announce(server.address(), json)?;
        let mut reporter = Reporter::new(server.address());
        while !shutdown.wait(REFRESH) {
            if let Some(error) = server.failed() {
                return Err(error.into());
            }
            reporter.show(&server.status(), json)?;
        }
        let (address, status) = (server.address(), server.status());
        drop(server);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if json {
            return exit::print(&format!(
                "{}\n",
                json!({ "ended": PartProgress::Serve(address, status).object() })
            ));
        }
        exit::print(&format!("{}\n", line(&status)))
    }

    fn settings(&self) -> Settings {
        Settings {
            log: self.log.clone(),
            listen: self.listen,
            files: Files {
                certificate: self.cert.clone(),
                key: self.key.clone(),
                authority: self.clients_ca.clone(),
            },
            replicas: self.replicas,
            synced: self.synced,
        }
    }

    fn announce(&self, listen: SocketAddr, json: bool) -> Result<(), Failure> {
        let log = self.log.display();
        if json {
            let ready = json!({ "log": log.to_string(), "listen": listen.to_string() });
            exit::print(&format!("{}\n", json!({ "ready": ready })))?;
        } else {
            exit::print(&format!("ready  log {log}  listen {listen}\n"))?;
        }
        control::ready::notify().context("notifying the service manager")?;
        Ok(())
    }
}

/// Prints state changes; has the last printed state.
struct Reporter {
    listen: SocketAddr,
    object: Value,
    replicas: BTreeMap<SocketAddr, String>,
}

impl Reporter {
    fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            object: Value::Null,
            replicas: BTreeMap::new(),
        }
    }

    fn show(&mut self, status: &Status, json: bool) -> Result<(), Failure> {
        if json {
            let object = PartProgress::Serve(self.listen, status.clone()).object();
            if object != self.object {
                exit::print(&format!("{}\n", json!({ "status": object })))?;
                self.object = object;
            }
            return Ok(());
        }
        let terminal = io::stderr().is_terminal();
        if terminal {
            eprint!("\r\x1b[K");
        }
        let named = status.replicas.iter();
        let now: BTreeMap<_, _> = named.map(|it| (it.address, it.name.clone())).collect();
        for (address, name) in now.iter().filter(|(at, _)| !self.replicas.contains_key(at)) {
            exit::print(&format!("joined  {name}  {address}\n"))?;
        }
        for (address, name) in self.replicas.iter().filter(|(at, _)| !now.contains_key(at)) {
            exit::print(&format!("left  {name}  {address}\n"))?;
        }
        self.replicas = now;
        if terminal {
            eprint!("{}", line(status));
        }
        Ok(())
    }
}

fn line(status: &Status) -> String {
    let (number, epoch) = (status.tip.number, status.tip.epoch);
    let count = status.replicas.len();
    let mut line = format!("record {number}  epoch {epoch}  replicas {count}");
    if let Some(last) = status.replicas.iter().max_by_key(|it| it.lag_records) {
        let (name, records, ms) = (&last.name, last.lag_records, last.lag_ms);
        line += &format!("  last {name}: {records} records, {ms} ms behind");
    }
    line
}
