//! A program that runs in an environment.

use std::io;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::ready::Ready;
use crate::served::GuestProgram;

/// Between looks for what a program says.
const TICK: Duration = Duration::from_millis(1);

/// A running program, head of its own process group. Dropping it kills the group.
#[derive(Debug)]
pub struct Child {
    running: Running,
    inside: Option<Box<dyn Inside>>,
    ready: Option<Ready>,
}

#[derive(Debug)]
enum Running {
    /// A process of this machine: the program, or what stands for it here.
    Process(std::process::Child),
    Guest(GuestProgram),
}

/// What runs inside an environment while a process of this machine stands for it: that has its standard
/// streams, and ends with it and as it does.
pub(super) trait Inside: Send + Sync + std::fmt::Debug {
    /// On this machine.
    fn id(&self) -> Pid;

    /// Killing it has to end what stands for it.
    fn signal(&self, signal: Signal) -> io::Result<()>;
}

impl Child {
    /// Starts a program on this machine itself. It dies with the calling thread.
    ///
    /// # Errors
    /// What the kernel says of starting it.
    pub fn start(mut command: Command) -> io::Result<Self> {
        sys::child::die_with_parent(&mut command)
            .spawn()
            .map(Self::of)
    }

    pub(super) fn of(process: std::process::Child) -> Self {
        Self::running(Running::Process(process))
    }

    pub(crate) fn in_guest(program: GuestProgram) -> Self {
        Self::running(Running::Guest(program))
    }

    fn running(running: Running) -> Self {
        Self {
            running,
            inside: None,
            ready: None,
        }
    }

    /// From now on, what it says of being ready is heard.
    pub(super) fn hears(&mut self, ready: Option<Ready>) {
        self.ready = ready;
    }

    /// Waits until it says that it is ready: false where it has ended, or `patience` is over, before.
    /// The program was started as one that [`super::Program::tells`].
    pub fn wait_ready(&mut self, patience: Duration) -> io::Result<bool> {
        let until = Instant::now() + patience;
        loop {
            if self.is_ready()? {
                return Ok(true);
            }
            if self.try_wait()?.is_some() || Instant::now() > until {
                return self.is_ready();
            }
            std::thread::sleep(TICK);
        }
    }

    fn is_ready(&self) -> io::Result<bool> {
        match (&self.running, &self.ready) {
            (Running::Guest(program), _) => Ok(program.is_ready()),
            (Running::Process(_), Some(ready)) => Ok(ready.heard()),
            (Running::Process(_), None) => {
                Err(io::Error::other("nobody listens for its being ready"))
            }
        }
    }

    /// From now on, the process that was started stands for another.
    pub(super) fn stands_for(&mut self, inside: Box<dyn Inside>) {
        self.inside = Some(inside);
    }

    /// The process of this machine that its work is done by.
    pub fn id(&self) -> u32 {
        match (&self.inside, &self.running) {
            (Some(inside), _) => inside.id().as_raw().cast_unsigned(),
            (None, Running::Process(process)) => process.id(),
            (None, Running::Guest(program)) => program.outside(),
        }
    }

    /// Pipes, where the program asked for them.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        match &mut self.running {
            Running::Process(process) => process.stdin.take(),
            Running::Guest(program) => program.stdin.take(),
        }
    }

    pub fn stdout(&mut self) -> Option<ChildStdout> {
        match &mut self.running {
            Running::Process(process) => process.stdout.take(),
            Running::Guest(program) => program.stdout.take(),
        }
    }

    pub fn stderr(&mut self) -> Option<ChildStderr> {
        match &mut self.running {
            Running::Process(process) => process.stderr.take(),
            Running::Guest(program) => program.stderr.take(),
        }
    }

    /// Sends a signal to the whole group, or to the one that runs inside.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if let Some(inside) = &self.inside {
            return inside.signal(signal);
        }
        match &self.running {
            Running::Process(process) => {
                let group = Pid::from_raw(process.id().cast_signed());
                Ok(killpg(group, signal)?)
            }
            Running::Guest(program) => program.signal(signal),
        }
    }

    /// The exit status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.running {
            Running::Process(process) => process.try_wait(),
            Running::Guest(program) => Ok(program.status()),
        }
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.running {
            Running::Process(process) => process.wait(),
            Running::Guest(program) => Ok(program.wait()),
        }
    }

    /// Asks it to end (SIGTERM), and kills it when it has not after `patience`.
    pub fn stop(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        let until = Instant::now() + patience;
        self.signal(Signal::SIGTERM)?;
        while Instant::now() < until {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(TICK);
        }
        self.signal(Signal::SIGKILL)?;
        self.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // After the head was reaped its group may be gone, and its id another's.
        if matches!(self.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::SIGKILL);
            let _ = self.wait();
        }
    }
}
