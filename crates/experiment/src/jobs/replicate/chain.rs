//! All that runs between a tree and its copies: the capture at one end, `apply` for each copy at the
//! other.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::memory_disk::done;
use super::service::Service;
use super::transport::{Transport, nats_server};
use crate::program::lowroad_command;

/// They end when dropped.
#[derive(Debug)]
pub(super) struct Chain {
    transport: Transport,
    /// The source's: the capture, and what ships its log.
    source: Vec<Service>,
    /// What stands between.
    broker: Option<Service>,
    receivers: Vec<Service>,
    appliers: Vec<Service>,
    /// The trees of the copies.
    pub(super) trees: Vec<PathBuf>,
}

/// What became of a tree's changes.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) capture: Value,
    /// Bytes that left the source.
    pub(super) sent: u64,
}

impl Chain {
    /// Starts all of it in a folder, and returns once each copy has the tree.
    pub(super) fn start(
        transport: Transport,
        tree: &Path,
        folder: &Path,
        copies: usize,
        in_place: bool,
    ) -> Result<Self> {
        let log = folder.join("log");
        let mut command = lowroad_command(&["replicate", "--json", "capture", "--tree"]);
        command.arg(tree).arg("--to").arg(&log);
        let capture = Service::start(command, folder.join("capture"))?;
        let mut chain = Self {
            transport,
            source: vec![capture],
            broker: None,
            receivers: Vec::new(),
            appliers: Vec::new(),
            trees: Vec::new(),
        };
        let from = chain.ship(&log, folder)?;
        for copy in 0..copies {
            let log = match &from {
                Some(from) => chain.receive(from, folder, copy)?,
                None => log.clone(),
            };
            chain.apply(&log, folder, copy, in_place)?;
        }
        Ok(chain)
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        let copies = self.receivers.iter().chain(&self.appliers);
        let all = self.source.iter().chain(&self.broker).chain(copies);
        all.map(Service::id).collect()
    }

    pub(super) fn source(&self) -> impl Iterator<Item = u32> {
        self.source.iter().map(Service::id)
    }

    /// Ends it, the source first.
    pub(super) fn stop(self) -> Result<Account> {
        let mut accounts = Vec::new();
        for service in self.source {
            accounts.push(service.stop()?);
        }
        let mut received = 0;
        for service in self.receivers {
            received += bytes(&service.stop()?);
        }
        for service in self.appliers {
            service.stop()?;
        }
        let sent = match self.transport {
            Transport::File => 0,
            Transport::Tcp => received,
            Transport::Nats => accounts.last().map_or(0, bytes),
        };
        let capture = accounts.swap_remove(0);
        Ok(Account { capture, sent })
    }

    /// Starts what ships the log: what `receive` is told.
    fn ship(&mut self, log: &Path, folder: &Path) -> Result<Option<Vec<String>>> {
        match self.transport {
            Transport::File => Ok(None),
            Transport::Tcp => self.serve(log, folder).map(Some),
            Transport::Nats => self.publish(log, folder).map(Some),
        }
    }

    fn serve(&mut self, log: &Path, folder: &Path) -> Result<Vec<String>> {
        let keys = folder.join("keys");
        let mut make = lowroad_command(&["replicate", "keys"]);
        make.arg(&keys)
            .args(["--server", "localhost", "--client", "copy"]);
        done(&mut make)?;
        let key = |name: &str| keys.join(name).to_string_lossy().into_owned();
        let mut command = lowroad_command(&["replicate", "--json", "serve"]);
        command.arg(log).args(["--listen", "127.0.0.1:0"]);
        command.args(["--cert", &key("server.pem"), "--key", &key("server.key")]);
        command.args(["--clients-ca", &key("ca.pem")]);
        let serve = Service::start(command, folder.join("serve"))?;
        let ready = serve.last_value("ready")?;
        self.source.push(serve);
        let listen = ready["listen"].as_str().context("where it listens")?;
        let port = listen.rsplit(':').next().unwrap_or_default();
        let words = [
            format!("tcp://localhost:{port}"),
            "--cert".to_owned(),
            key("copy.pem"),
            "--key".to_owned(),
            key("copy.key"),
            "--server-ca".to_owned(),
            key("ca.pem"),
        ];
        Ok(words.into())
    }

    fn publish(&mut self, log: &Path, folder: &Path) -> Result<Vec<String>> {
        let at = folder.join("nats");
        fs::create_dir(&at)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let store = at.join("store");
        let text = format!(
            "listen: 127.0.0.1:{port}\nserver_name: nats\njetstream {{ store_dir: {store:?} }}\n"
        );
        fs::write(at.join("conf"), text)?;
        let mut server = Command::new(nats_server());
        server.arg("-c").arg(at.join("conf"));
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        self.broker = Some(Service::start_other(server, at, listens)?);
        let url = format!("nats://127.0.0.1:{port}/COPIES");
        let mut command = lowroad_command(&["replicate", "--json", "publish"]);
        command.arg(log).args(["--to", &url, "--replicas", "1"]);
        let publish = Service::start(command, folder.join("publish"))?;
        self.source.push(publish);
        Ok(vec![url])
    }

    /// A copy of the log.
    fn receive(&mut self, from: &[String], folder: &Path, copy: usize) -> Result<PathBuf> {
        let log = folder.join(format!("log {copy}"));
        let mut command = lowroad_command(&["replicate", "--json", "receive"]);
        command.args(from).arg("--to").arg(&log);
        let service = Service::start(command, folder.join(format!("receive {copy}")))?;
        self.receivers.push(service);
        Ok(log)
    }

    fn apply(&mut self, log: &Path, folder: &Path, copy: usize, in_place: bool) -> Result<()> {
        let to = folder.join(format!("copy {copy}"));
        let mut command = lowroad_command(&["replicate", "--json", "apply"]);
        command.arg(log).arg("--to").arg(&to).arg("--follow");
        if in_place {
            command.args(["--in-place", "0"]);
        }
        let service = Service::start(command, folder.join(format!("apply {copy}")))?;
        self.appliers.push(service);
        self.trees.push(to.join("tree"));
        Ok(())
    }
}

fn bytes(account: &Value) -> u64 {
    account["bytes"].as_u64().unwrap_or(0)
}
