//! Where a host lives: what runs its programs, and which network namespace its links plug into.

use std::io;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datapath::Missing;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sys::netns::{self, Namespace};

use crate::Error;

/// A kind of machine: a namespace of this one, a container, a virtual machine.
pub trait Environment: Send + Sync + std::fmt::Debug {
    /// The name a topology has under `env`.
    fn name(&self) -> &'static str;

    /// The network namespace its links plug into.
    fn namespace(&self) -> &Namespace;

    /// Starts a program inside. It dies with this process.
    fn spawn(&self, command: Command) -> io::Result<Child>;
}

/// A network namespace of this machine, sharing everything else.
#[derive(Debug)]
pub struct Native {
    name: String,
    namespace: Namespace,
    /// Programs are started by one thread that lives as long as the host: the kernel kills a
    /// child when the thread that started it ends.
    starter: Option<JoinHandle<()>>,
    requests: Option<mpsc::Sender<Request>>,
}

type Request = (Command, mpsc::Sender<io::Result<std::process::Child>>);

impl Native {
    /// Why this machine has no such environment.
    pub fn probe() -> Result<(), Missing> {
        if nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        Err(Missing::new(
            "network namespaces need root",
            "run with sudo",
        ))
    }

    /// A new namespace called `name`; programs inside run on `cpus`, or anywhere when empty.
    pub(crate) fn up(name: &str, cpus: &[usize]) -> Result<Self, Error> {
        Self::probe()?;
        let mut allowed = CpuSet::new();
        for &cpu in cpus {
            allowed
                .set(cpu)
                .map_err(|_| Error::Topology(format!("no CPU {cpu} on this machine")))?;
        }
        let confined = (!cpus.is_empty()).then_some(allowed);
        let namespace = Namespace::create(name)?;
        let mut native = Self {
            name: name.to_owned(),
            namespace,
            starter: None,
            requests: None,
        };
        let inside = native.namespace.try_clone()?;
        let (requests, incoming) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        native.requests = Some(requests);
        native.starter = Some(std::thread::spawn(move || {
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
            Ok(Ok(())) => Ok(native),
            Ok(Err(source)) => Err(native.starting("its first thread", source)),
            Err(gone) => Err(native.starting("its first thread", io::Error::other(gone))),
        }
    }

    fn starting(&self, program: &str, cause: io::Error) -> Error {
        Error::Spawn {
            host: self.name.clone(),
            program: program.to_owned(),
            cause,
        }
    }
}

impl Environment for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn spawn(&self, command: Command) -> io::Result<Child> {
        let ended = || io::Error::other("the host is down");
        let (answer, answered) = mpsc::channel();
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        requests.send((command, answer)).map_err(|_| ended())?;
        let process = answered.recv().map_err(|_| ended())??;
        Ok(Child { process })
    }
}

impl Drop for Native {
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
        // Nobody waits for it any more: it must not run unseen.
        if let Err(mpsc::SendError(Ok(mut unseen))) = answer.send(started) {
            let _ = unseen.kill();
            let _ = unseen.wait();
        }
    }
}

/// Confines the calling thread, and what it starts, to the CPUs.
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

/// A running program, head of its own process group. Dropping it kills the group.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
}

impl Child {
    /// Starts a program on this machine itself. It dies with the calling thread.
    ///
    /// # Errors
    /// What the kernel says of starting it.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let process = sys::child::die_with_parent(&mut command).spawn()?;
        Ok(Self { process })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Pipes, where the command asked for them.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.process.stdin.take()
    }

    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.process.stdout.take()
    }

    pub fn stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.process.stderr.take()
    }

    /// Sends a signal to the whole group.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(killpg(self.group(), signal)?)
    }

    /// The exit status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// Asks it to end (SIGTERM), and kills it when it has not after `patience`.
    pub fn stop(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.process.try_wait()? {
            return Ok(status);
        }
        let until = Instant::now() + patience;
        self.signal(Signal::SIGTERM)?;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.signal(Signal::SIGKILL)?;
        self.process.wait()
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // After the head was reaped its group may be gone, and its id another's.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::SIGKILL);
            let _ = self.process.wait();
        }
    }
}
