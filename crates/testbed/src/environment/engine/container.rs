//! One container of an engine: started, reached through its agent, kept from bed to bed, removed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{self, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netdev::Netlink;
use serde_json::{Value, json};
use sys::netns;
use tempfile::TempDir;

use super::{ELSEWHERE, Engine, Image, PATIENCE, bridge};
use crate::Error;
use crate::environment::{Child, Network, Program, Published};
use crate::error::at;
use crate::kept::{self, Waiting};
use crate::served::Served;

/// Between looks whether the agent has said something.
const TICK: Duration = Duration::from_millis(5);
/// What an engine says of a capability that is younger than it.
const UNKNOWN: &str = "unknown capability";

/// Those that wait for their next bed.
pub(crate) static WAITING: Waiting<Container> = Waiting::new();

/// What tells containers apart that are otherwise as good as each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) engine: &'static str,
    pub(super) cpus: Vec<usize>,
    /// Ports that are published; without any it is on no network of the engine's.
    pub(super) publish: Vec<u16>,
    /// Beside what the engine gives.
    pub(super) capabilities: Vec<String>,
}

/// A running container. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Container {
    // The order of the fields is the order of the teardown: the container is gone before its image goes.
    running: Running,
    network: Network,
    published: Option<Published>,
    served: Served,
    /// Its first process, by its id on this machine.
    process: u32,
    version: String,
    /// From asking for it until its agent answered.
    up: Duration,
    shape: Shape,
    _image: Arc<Image>,
    _folder: TempDir,
}

/// What the engine has of it, and the program that is attached to it.
#[derive(Debug)]
struct Running {
    engine: &'static Engine,
    name: String,
    attached: process::Child,
}

impl Shape {
    /// For an engine of before Linux 5.8, with what stood for these then.
    fn older(&self) -> Self {
        let mut shape = self.clone();
        for capability in &mut shape.capabilities {
            if matches!(capability.as_str(), "CAP_BPF" | "CAP_PERFMON") {
                "CAP_SYS_ADMIN".clone_into(capability);
            }
        }
        shape.capabilities.sort();
        shape.capabilities.dedup();
        shape
    }
}

impl Container {
    pub(super) fn run(engine: &'static Engine, shape: Shape) -> Result<Self, Error> {
        let failed = |what: String| Error::Container {
            engine: engine.name,
            what,
        };
        let image = Image::of(engine)?;
        let begun = Instant::now();
        let at = match shape.publish.is_empty() {
            true => None,
            false => Some(bridge::address(engine).map_err(failed)?),
        };
        let answering = |shape: &Shape| Running::answering(engine, shape, at, &image.tag);
        let answered = match answering(&shape) {
            Err(why) if why.contains(UNKNOWN) => answering(&shape.older()),
            answered => answered,
        };
        let (running, served, folder) = answered.map_err(failed)?;
        let hello = served.hello(Duration::ZERO).transpose().map_err(failed)?;
        tracing::debug!("{}: kernel {hello:?}", running.name);
        let up = begun.elapsed();
        let process = running.process().map_err(failed)?;
        let published = at.map(|at| bridge::given(engine, &running.name, process, at));
        Ok(Self {
            published: published.transpose().map_err(failed)?,
            network: Network::of(&running.name, &shape.cpus, process)?,
            running,
            served,
            process,
            version: engine.version().map_err(failed)?,
            up,
            shape,
            _image: image,
            _folder: folder,
        })
    }

    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    pub(super) fn published(&self) -> Option<&Published> {
        self.published.as_ref()
    }

    pub(super) fn served(&self) -> &Served {
        &self.served
    }

    pub(super) fn start(&self, program: Program) -> io::Result<Child> {
        let given = |capability: &&str| self.shape.capabilities.iter().any(|has| has == capability);
        let asked = program.capabilities(&[]);
        if let Some(capability) = asked.iter().find(|capability| !given(capability)) {
            let what = self.running.engine.container;
            let what = format!(
                "{what} has what its engine gives, and its host does not ask for {capability}"
            );
            return Err(io::Error::other(what));
        }
        self.served.start(program, |inside| self.outside(inside))
    }

    /// The process of this machine that has this id in the container.
    fn outside(&self, inside: u32) -> u32 {
        let inode = self.network.namespace().inode().unwrap_or_default();
        let processes = netns::processes_in(inode).into_iter();
        let found = processes.map(i32::cast_unsigned).find(|process| {
            let status = fs::read_to_string(format!("/proc/{process}/status"));
            let status = status.unwrap_or_default();
            let ids = status.lines().find(|line| line.starts_with("NSpid:"));
            let last = ids.and_then(|ids| ids.split_whitespace().next_back());
            last.is_some_and(|last| last.parse() == Ok(inside))
        });
        // One that has ended already is nobody's work.
        found.unwrap_or(self.process)
    }

    pub(super) fn facts(&self) -> BTreeMap<&'static str, Value> {
        BTreeMap::from([
            ("engine", json!(self.version)),
            ("up_us", json!(self.up.as_micros())),
        ])
    }

    /// Undoes what a bed set in it, and keeps it if that is wanted.
    pub(super) fn give_back(self) {
        if !kept::wanted() {
            return;
        }
        match self.reset() {
            Ok(()) => WAITING.keep(self),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    fn reset(&self) -> Result<(), Error> {
        self.served.clear().map_err(|error| Error::Container {
            engine: self.running.engine.name,
            what: error.to_string(),
        })?;
        let cleared = self.network.namespace().run(|| {
            let mut netlink = Netlink::new()?;
            for link in netlink.links()? {
                let given = self.published.as_ref().map(|given| &given.device);
                if !link.loopback && given != Some(&link.name) {
                    netlink.delete_link(link.index)?;
                }
            }
            Ok(())
        })?;
        cleared.map_err(at(&self.running.name))
    }
}

/// One that waits and still answers.
pub(super) fn take(shape: &Shape) -> Option<Container> {
    loop {
        let container = WAITING.take(|container| container.shape == *shape)?;
        if container.served.ping().is_ok() {
            return Some(container);
        }
    }
}

/// Whether a container of this image is a process of this machine. One is started to see, and removed.
pub(super) fn try_image(engine: &'static Engine, image: &str) -> Result<(), String> {
    let shape = Shape {
        engine: engine.name,
        cpus: Vec::new(),
        publish: Vec::new(),
        capabilities: Vec::new(),
    };
    let (running, _served, _folder) = Running::answering(engine, &shape, None, image)?;
    let seen = running.process();
    // It is gone before what it is asked by.
    drop(running);
    seen.map(drop)
}

impl Running {
    /// One whose agent has said something, what it is asked by, and where it complains.
    fn answering(
        engine: &'static Engine,
        shape: &Shape,
        at: Option<IpAddr>,
        image: &str,
    ) -> Result<(Self, Served, TempDir), String> {
        let text = |error: io::Error| error.to_string();
        let folder = crate::folder().map_err(text)?;
        let errors = folder.path().join("errors");
        let begun = Instant::now();
        let file = File::create(&errors).map_err(text)?;
        let mut running = Self::start(engine, shape, at, image, file)?;
        let attached = &mut running.attached;
        let (Some(to), Some(from)) = (attached.stdin.take(), attached.stdout.take()) else {
            return Err("its streams are no pipes".to_owned());
        };
        let served = Served::open(engine.container, to, from).map_err(text)?;
        while served.hello(TICK).is_none() {
            if served.is_gone() || begun.elapsed() > PATIENCE {
                let said = fs::read_to_string(&errors).unwrap_or_default();
                let first = said.lines().next().unwrap_or_default();
                return Err(format!("{} does not answer: {first}", running.name));
            }
        }
        Ok((running, served, folder))
    }

    fn start(
        engine: &'static Engine,
        shape: &Shape,
        at: Option<IpAddr>,
        image: &str,
        errors: File,
    ) -> Result<Self, String> {
        let name = super::unique(engine);
        let cpus: Vec<String> = shape.cpus.iter().map(usize::to_string).collect();
        let cpus = cpus.join(",");
        // What is said passes the engine: in a log of its own nobody would read it.
        let mut words = vec!["run", "--rm", "--interactive", "--log-driver", "none"];
        words.extend(["--name", &name, "--hostname", "lowroad"]);
        let ports = ports(at, &shape.publish);
        match at {
            None => words.extend(["--network", "none"]),
            Some(_) => words.extend(ports.iter().flat_map(|port| ["--publish", port])),
        }
        if !cpus.is_empty() {
            words.extend(["--cpuset-cpus", &cpus]);
        }
        let capabilities = shape.capabilities.iter();
        words.extend(capabilities.flat_map(|capability| ["--cap-add", capability]));
        words.extend(engine.run);
        words.push(image);
        let mut command = engine.command(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for this process. When that is killed the agent's input ends, and the container with it.
        let started = command.stderr(errors).process_group(0).spawn();
        Ok(Self {
            engine,
            attached: started.map_err(|error| error.to_string())?,
            name,
        })
    }

    /// Its first process.
    fn process(&self) -> Result<u32, String> {
        let state = ["inspect", "--format", "{{.State.Pid}}", &self.name];
        let said = self.engine.ask(&state)?;
        let process = said
            .parse()
            .map_err(|_| format!("{said:?} is no process"))?;
        match holds(process) {
            true => Ok(process),
            false => Err(ELSEWHERE.to_owned()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        remove(self.engine, &self.name);
        // It ends with the container that it is attached to; nobody waits for an engine that hangs.
        let _ = self.attached.kill();
        let _ = self.attached.wait();
    }
}

/// Whether a process of this machine is the first one of a container of ours.
fn holds(process: u32) -> bool {
    let words = fs::read_to_string(format!("/proc/{process}/cmdline"));
    words.is_ok_and(|words| words.split('\0').any(|word| word == guest::HOLD))
}

/// A container of ours that an engine has, running or not.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) image: String,
    /// Its first process, by its id on the engine's machine; 0 when it has ended.
    process: u32,
}

impl Found {
    /// The one of this name; none where it has gone meanwhile, or is somebody else's.
    pub(super) fn of(engine: &Engine, name: &str) -> Result<Option<Self>, String> {
        let format = "{{.State.Pid}} {{.Image}} {{.Path}} {{.Args}}";
        let said = match engine.ask(&["container", "inspect", "--format", format, name]) {
            Err(why) if is_gone(&why) => return Ok(None),
            said => said?,
        };
        let mut words = said.splitn(3, ' ');
        let (process, image, runs) = (words.next(), words.next(), words.next());
        let process = process.and_then(|process| process.parse().ok());
        let (Some(process), Some(image), Some(runs)) = (process, image, runs) else {
            return Err(format!("{said:?} is no container's state"));
        };
        Ok(runs.contains(guest::HOLD).then(|| Self {
            name: name.to_owned(),
            image: image.to_owned(),
            process,
        }))
    }

    pub(super) fn runs(&self) -> bool {
        self.process > 0
    }

    /// Whether it runs on this machine.
    pub(super) fn is_here(&self) -> bool {
        holds(self.process)
    }
}

/// How an engine is told to publish ports at an address, each to both kinds of transport.
fn ports(at: Option<IpAddr>, ports: &[u16]) -> Vec<String> {
    let each = at
        .into_iter()
        .flat_map(|at| ports.iter().map(move |port| (at, port)));
    let both = |(at, port)| ["tcp", "udp"].map(|kind| format!("{at}:{port}:{port}/{kind}"));
    each.flat_map(both).collect()
}

/// Removes a container, running or not.
pub(super) fn remove(engine: &Engine, name: &str) {
    match engine.ask(&["rm", "--force", "--volumes", name]) {
        Ok(_) => {}
        // It has gone by itself meanwhile.
        Err(why) if is_gone(&why) => {}
        Err(why) if why.contains("already in progress") => {}
        Err(why) => tracing::warn!("{name}: {why}"),
    }
}

/// Whether an engine complains that there is no such container.
fn is_gone(why: &str) -> bool {
    why.to_lowercase().contains("no such container")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_engine_is_asked_for_what_it_knows_and_for_that_once() {
        let shape = Shape {
            engine: "docker",
            cpus: vec![0],
            publish: Vec::new(),
            capabilities: ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]
                .map(str::to_owned)
                .into(),
        };
        let older = shape.older();
        assert_eq!(older.capabilities, ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert_eq!((older.engine, older.cpus), (shape.engine, shape.cpus));
    }
}
