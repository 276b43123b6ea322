//! All that runs between a tree and its copies: the capture at one end, `apply` for each copy at the
//! other.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::memory_disk::done;
use super::service::Service;
use super::transport::{Transport, nats_server};
use super::tree;
use crate::arms::{Place, ProgramArm, ProgramProcess, Values};
use crate::outcome::Outcome;
use crate::program::Lowroad;

const TICK: Duration = Duration::from_millis(5);

/// The way of a tree to its copies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// A build, by this transport.
    Lowroad(Transport, &'a Lowroad),
    /// An external program, which keeps one copy.
    Program(&'a ProgramArm),
}

/// They end when dropped.
#[derive(Debug)]
pub(super) struct Chain {
    transport: Transport,
    lowroad: Lowroad,
    /// The program that replaces all services.
    program: Option<ProgramProcess>,
    /// The source's: the capture, and what ships its log.
    source: Vec<Service>,
    /// The broker between them.
    broker: Option<Service>,
    receivers: Vec<Service>,
    appliers: Vec<Service>,
    /// The trees of the copies.
    pub(super) trees: Vec<PathBuf>,
}

/// The fate of a tree's changes.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) capture: Value,
    /// Bytes that left the source.
    pub(super) sent: u64,
}

impl Chain {
    /// Starts all of it for a tree and in a folder, and returns once each copy has the tree.
    pub(super) fn start(
        source: Source<'_>,
        (tree, folder): (&Path, &Path),
        copies: usize,
        in_place: bool,
    ) -> Result<Self> {
        let (transport, lowroad) = match source {
            Source::Lowroad(transport, lowroad) => (transport, lowroad),
            Source::Program(program) => return Self::start_program(program, tree, folder),
        };
        let log = folder.join("log");
        let mut command = lowroad.command(&["replicate", "--json", "capture", "--tree"]);
        command.arg(tree).arg("--to").arg(&log);
        let capture = Service::start(command, folder.join("capture"))?;
        let mut chain = Self {
            transport,
            lowroad: lowroad.clone(),
            program: None,
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

    /// Starts a program, and returns once its copy has the tree.
    fn start_program(program: &ProgramArm, tree: &Path, folder: &Path) -> Result<Self> {
        let (copy, own) = (folder.join("copy"), folder.join("program"));
        fs::create_dir(&copy)?;
        fs::create_dir(&own)?;
        let one = |path: &Path| vec![path.display().to_string()];
        let values = Values::from([("tree", one(tree)), ("copy", one(&copy))]);
        let process = ProgramProcess::start(program, Place::Machine, values, &own)?;
        let deadline = Instant::now() + program.timeout;
        // Files that come and go while they are compared differ.
        while tree::between(tree, &copy).map_or(true, |bytes| bytes > 0) {
            ensure!(
                Instant::now() < deadline,
                "{}: {{copy}} does not have the tree after {} s",
                program.name,
                program.timeout.as_secs_f64()
            );
            std::thread::sleep(TICK);
        }
        Ok(Self {
            transport: Transport::File,
            lowroad: Lowroad::own(),
            program: Some(process),
            source: Vec::new(),
            broker: None,
            receivers: Vec::new(),
            appliers: Vec::new(),
            trees: vec![copy],
        })
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        let copies = self.receivers.iter().chain(&self.appliers);
        let all = self.source.iter().chain(&self.broker).chain(copies);
        let program = self.program.iter().flat_map(ProgramProcess::pids);
        all.map(Service::id).chain(program).collect()
    }

    pub(super) fn source(&self) -> impl Iterator<Item = u32> {
        let program = self.program.iter().flat_map(ProgramProcess::pids);
        self.source.iter().map(Service::id).chain(program)
    }

    pub(super) fn is_program(&self) -> bool {
        self.program.is_some()
    }

    /// Notes what an external program was.
    ///
    /// # Errors
    /// It has ended by itself.
    pub(super) fn note(&mut self, outcome: &mut Outcome) -> Result<()> {
        match &mut self.program {
            Some(program) => program.note(outcome),
            None => Ok(()),
        }
    }

    /// Ends it, the source first.
    pub(super) fn stop(self) -> Result<Account> {
        if let Some(program) = self.program {
            program.stop()?;
            return Ok(Account {
                capture: Value::Null,
                sent: 0,
            });
        }
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
        let mut make = self.lowroad.command(&["replicate", "keys"]);
        make.arg(&keys)
            .args(["--server", "localhost", "--client", "copy"]);
        done(&mut make)?;
        let key = |name: &str| keys.join(name).to_string_lossy().into_owned();
        let mut command = self.lowroad.command(&["replicate", "--json", "serve"]);
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
        let mut command = self.lowroad.command(&["replicate", "--json", "publish"]);
        command.arg(log).args(["--to", &url, "--replicas", "1"]);
        let publish = Service::start(command, folder.join("publish"))?;
        self.source.push(publish);
        Ok(vec![url])
    }

    /// A copy of the log.
    fn receive(&mut self, from: &[String], folder: &Path, copy: usize) -> Result<PathBuf> {
        let log = folder.join(format!("log {copy}"));
        let mut command = self.lowroad.command(&["replicate", "--json", "receive"]);
        command.args(from).arg("--to").arg(&log);
        let service = Service::start(command, folder.join(format!("receive {copy}")))?;
        self.receivers.push(service);
        Ok(log)
    }

    fn apply(&mut self, log: &Path, folder: &Path, copy: usize, in_place: bool) -> Result<()> {
        let to = folder.join(format!("copy {copy}"));
        let mut command = self.lowroad.command(&[]);
        command.args(apply_arguments(log, &to, in_place));
        let service = Service::start(command, folder.join(format!("apply {copy}")))?;
        self.appliers.push(service);
        self.trees.push(to.join("tree"));
        Ok(())
    }
}

/// The arguments of what keeps a copy.
pub(super) fn apply_arguments(log: &Path, to: &Path, in_place: bool) -> Vec<OsString> {
    let words = ["replicate", "--json", "apply"].map(OsString::from);
    let paths = [log.into(), "--to".into(), to.into(), "--follow".into()];
    let in_place = in_place.then(|| ["--in-place".into(), "0".into()]);
    words
        .into_iter()
        .chain(paths)
        .chain(in_place.into_iter().flatten())
        .collect()
}

fn bytes(account: &Value) -> u64 {
    account["bytes"].as_u64().unwrap_or(0)
}
