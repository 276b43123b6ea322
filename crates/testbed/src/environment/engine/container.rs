//! One container of an engine: how it is started, reached through its agent, reset for the next bed, and removed.

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

use super::bridge;
use super::cli::{ELSEWHERE, Engine, TIMEOUT};
use super::image::Image;
use crate::agent::client::Agent;
use crate::environment::EngineNetwork;
use crate::error::{Error, at};
use crate::names;
use crate::network::Network;
use crate::pool::{self, Pool};
use crate::process::child::Child;
use crate::process::program::Program;

/// Between polls of the agent.
const TICK: Duration = Duration::from_millis(5);
/// An older engine's error for a newer capability.
const UNKNOWN: &str = "unknown capability";

/// Containers without a bed.
pub(crate) static CONTAINERS: Pool<Container> = Pool::new();

/// The properties by which a pooled container fits a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) engine: &'static str,
    pub(super) cpus: Vec<usize>,
    /// Ports that are published; without any it is on no network of the engine's.
    pub(super) publish: Vec<u16>,
    /// In addition to those that the engine gives.
    pub(super) capabilities: Vec<String>,
}

/// A running container. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Container {
    // The order of the fields is the order of the teardown: the container is gone before its image goes.
    instance: Instance,
    network: Network,
    engine_network: Option<EngineNetwork>,
    agent: Agent,
    /// Its first process, by its id on this machine.
    process: u32,
    version: String,
    /// From asking for it until its agent answered.
    up: Duration,
    shape: Shape,
    _image: Arc<Image>,
    _folder: TempDir,
}

/// The container at the engine, and the engine's client that is attached to it.
#[derive(Debug)]
struct Instance {
    engine: &'static Engine,
    name: String,
    attached: process::Child,
}

impl Shape {
    /// For an engine from before Linux 5.8, with the capability that stood for these then.
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
        let start = |shape: &Shape| Instance::start_with_agent(engine, shape, at, &image.tag);
        let started = match start(&shape) {
            Err(why) if why.contains(UNKNOWN) => start(&shape.older()),
            started => started,
        };
        let (instance, agent, folder) = started.map_err(failed)?;
        let hello = agent.hello(Duration::ZERO).transpose().map_err(failed)?;
        tracing::debug!("{}: kernel {hello:?}", instance.name);
        let up = begun.elapsed();
        let process = instance.process().map_err(failed)?;
        let engine_network = at.map(|at| bridge::inspect(engine, &instance.name, process, at));
        Ok(Self {
            engine_network: engine_network.transpose().map_err(failed)?,
            network: Network::of(&instance.name, &shape.cpus, process)?,
            instance,
            agent,
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

    pub(super) fn engine_network(&self) -> Option<&EngineNetwork> {
        self.engine_network.as_ref()
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(super) fn start(&self, program: Program) -> io::Result<Child> {
        let has = |capability: &&str| self.shape.capabilities.iter().any(|own| own == capability);
        let needed = program.capabilities(&[]);
        if let Some(capability) = needed.iter().find(|capability| !has(capability)) {
            let what = self.instance.engine.container;
            let what = format!(
                "{what} has what its engine gives, and its host does not ask for {capability}"
            );
            return Err(io::Error::other(what));
        }
        self.agent.start(program, |inside| self.outside(inside))
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
        // A process that has ended already has no id here.
        found.unwrap_or(self.process)
    }

    pub(super) fn facts(&self) -> BTreeMap<&'static str, Value> {
        BTreeMap::from([
            ("engine", json!(self.version)),
            ("up_us", json!(self.up.as_micros())),
        ])
    }

    /// Undoes what a bed set in it, and puts it into the pool, if that is held.
    pub(super) fn give_back(self) {
        if !pool::is_held() {
            return;
        }
        match self.reset() {
            Ok(()) => CONTAINERS.put(self),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    fn reset(&self) -> Result<(), Error> {
        self.agent.clear().map_err(|error| Error::Container {
            engine: self.instance.engine.name,
            what: error.to_string(),
        })?;
        let cleared = self.network.namespace().run(|| {
            let mut netlink = Netlink::new()?;
            for link in netlink.links()? {
                let own = self.engine_network.as_ref().map(|own| &own.device);
                if !link.loopback && own != Some(&link.name) {
                    netlink.delete_link(link.index)?;
                }
            }
            Ok(())
        })?;
        cleared.map_err(at(&self.instance.name))
    }
}

/// A container from the pool that still answers; those that do not end here.
pub(super) fn take(shape: &Shape) -> Option<Container> {
    loop {
        let container = CONTAINERS.take(|container| container.shape == *shape)?;
        if container.agent.ping().is_ok() {
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
    let (instance, _agent, _folder) = Instance::start_with_agent(engine, &shape, None, image)?;
    let process = instance.process();
    // The container ends before its agent's connection does.
    drop(instance);
    process.map(drop)
}

impl Instance {
    /// Starts a container, and waits for its agent's first frame. Returns the connection to the agent and the folder of
    /// the client's error output.
    fn start_with_agent(
        engine: &'static Engine,
        shape: &Shape,
        at: Option<IpAddr>,
        image: &str,
    ) -> Result<(Self, Agent, TempDir), String> {
        let text = |error: io::Error| error.to_string();
        let folder = names::folder().map_err(text)?;
        let errors = folder.path().join("errors");
        let begun = Instant::now();
        let file = File::create(&errors).map_err(text)?;
        let mut instance = Self::start(engine, shape, at, image, file)?;
        let attached = &mut instance.attached;
        let (Some(to), Some(from)) = (attached.stdin.take(), attached.stdout.take()) else {
            return Err("its streams are not pipes".to_owned());
        };
        let agent = Agent::open(engine.container, to, from).map_err(text)?;
        while agent.hello(TICK).is_none() {
            if agent.is_gone() || begun.elapsed() > TIMEOUT {
                let said = fs::read_to_string(&errors).unwrap_or_default();
                let first = said.lines().next().unwrap_or_default();
                return Err(format!("{} does not answer: {first}", instance.name));
            }
        }
        Ok((instance, agent, folder))
    }

    fn start(
        engine: &'static Engine,
        shape: &Shape,
        at: Option<IpAddr>,
        image: &str,
        errors: File,
    ) -> Result<Self, String> {
        let name = names::unique(engine.name);
        let cpus: Vec<String> = shape.cpus.iter().map(usize::to_string).collect();
        let cpus = cpus.join(",");
        // The agent's frames pass through the engine, which would log them.
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
            .map_err(|_| format!("{said:?} is not a process number"))?;
        match holds(process) {
            true => Ok(process),
            false => Err(ELSEWHERE.to_owned()),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(self.engine, &self.name);
        // The client ends with its container, unless the engine hangs.
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
pub(super) struct Inspection {
    pub(super) name: String,
    pub(super) image: String,
    /// Its first process, by its id on the engine's machine; 0 when it has ended.
    process: u32,
}

impl Inspection {
    /// Inspects the container of this name; none if it has gone meanwhile, or is not ours.
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
            return Err(format!("{said:?} is not the state of a container"));
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

/// The arguments that publish ports at an address, each over TCP and UDP.
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

/// Whether an engine reports that the container does not exist.
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
