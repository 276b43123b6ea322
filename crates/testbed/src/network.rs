//! The network of a bed's host: a namespace by name, and a thread that starts programs in it.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use datapath::Missing;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sys::netns::{self, Namespace};

use crate::error::Error;
use crate::process::child::Child;

/// A network namespace that links plug into. Dropping it kills everything inside.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
    namespace: Namespace,
    /// Programs are started by one thread that lives as long as the host: the kernel kills a
    /// child when the thread that started it ends.
    starter: Option<JoinHandle<()>>,
    requests: Option<mpsc::Sender<Request>>,
}

type Request = (Command, mpsc::Sender<io::Result<std::process::Child>>);

impl Network {
    /// A new namespace of this name, whose programs are confined to `cpus`; empty for any.
    pub(crate) fn create(name: &str, cpus: &[usize]) -> Result<Self, Error> {
        Self::start(name, cpus, || Namespace::create(name))
    }

    /// That of a process which is there already, under this name.
    pub(crate) fn of(name: &str, cpus: &[usize], process: u32) -> Result<Self, Error> {
        let file = PathBuf::from(format!("/proc/{process}/ns/net"));
        let own = Namespace::current()?.inode()?;
        // All that is inside ends with it.
        if Namespace::open(&file)?.inode()? == own {
            let what = format!("process {process} has no network of its own");
            return Err(Error::Topology(what));
        }
        Self::start(name, cpus, || Namespace::bind(name, &file))
    }

    fn start(
        name: &str,
        cpus: &[usize],
        namespace: impl FnOnce() -> Result<Namespace, netns::Error>,
    ) -> Result<Self, Error> {
        let mut allowed = CpuSet::new();
        for &cpu in cpus {
            allowed
                .set(cpu)
                .map_err(|_| Error::Topology(format!("no CPU {cpu} on this machine")))?;
        }
        let confined = (!cpus.is_empty()).then_some(allowed);
        let namespace = namespace()?;
        let mut network = Self {
            name: name.to_owned(),
            namespace,
            starter: None,
            requests: None,
        };
        let inside = network.namespace.try_clone()?;
        let (requests, incoming) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        network.requests = Some(requests);
        network.starter = Some(std::thread::spawn(move || {
            let entered = inside
                .enter()
                .map_err(io::Error::other)
                .and_then(|()| confine(confined));
            let failed = entered.is_err();
            if ready.send(entered).is_ok() && !failed {
                start_each(&incoming);
            }
        }));
        match is_ready.recv() {
            Ok(Ok(())) => Ok(network),
            Ok(Err(source)) => Err(network.starting("its first thread", source)),
            Err(gone) => Err(network.starting("its first thread", io::Error::other(gone))),
        }
    }

    /// `ip netns` lists it under the bed's name for the host.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Starts a program of this machine in this network, on its CPUs.
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let ended = || io::Error::other("the host is down");
        let (answer, answered) = mpsc::channel();
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        requests.send((command, answer)).map_err(|_| ended())?;
        let process = answered.recv().map_err(|_| ended())??;
        Ok(Child::local(process))
    }

    fn starting(&self, program: &str, cause: io::Error) -> Error {
        Error::Spawn {
            host: self.name.clone(),
            program: program.to_owned(),
            cause,
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The end of the starting thread kills its children.
        self.requests = None;
        if let Some(starter) = self.starter.take() {
            let _ = starter.join();
        }
        if let Ok(inode) = self.namespace.inode() {
            kill_inside(inode);
        }
        if let Err(error) = netns::remove(&self.name) {
            tracing::warn!("{error}");
        }
    }
}

fn start_each(requests: &mpsc::Receiver<Request>) {
    while let Ok((mut command, answer)) = requests.recv() {
        let started = sys::child::die_with_parent(&mut command).spawn();
        // The caller no longer waits for the program, so it must not keep running.
        if let Err(mpsc::SendError(Ok(mut unseen))) = answer.send(started) {
            let _ = unseen.kill();
            let _ = unseen.wait();
        }
    }
}

/// Confines the calling thread and its children to the CPUs.
pub(crate) fn confine(cpus: Option<CpuSet>) -> io::Result<()> {
    cpus.map_or(Ok(()), |cpus| {
        sched_setaffinity(Pid::from_raw(0), &cpus).map_err(io::Error::from)
    })
}

/// Kills every other process in a namespace, daemons included, and returns how many there were.
pub(crate) fn kill_inside(inode: u64) -> usize {
    let own = Pid::this();
    let inside: Vec<Pid> = netns::processes_in(inode)
        .into_iter()
        .map(Pid::from_raw)
        .filter(|&pid| pid != own)
        .collect();
    for &pid in &inside {
        let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    }
    inside.len()
}

/// Whether this process may make network namespaces.
pub(crate) fn root() -> Result<(), Missing> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Missing::new(
            "network namespaces need root",
            "run with sudo",
        )),
    }
}
