//! A program that runs in an environment.

use std::io;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::sd_notify::NotifySocket;
use crate::agent::program::AgentProgram;

/// Between polls of a program.
const TICK: Duration = Duration::from_millis(1);

/// A running program, head of its own process group. Dropping it kills the group.
#[derive(Debug)]
pub struct Child {
    process: Process,
    /// The first process of a container, by its id on this machine. `process` is then the container runtime, which
    /// has its standard streams and ends with it, with its exit status.
    first_process: Option<Pid>,
    ready: Option<NotifySocket>,
}

#[derive(Debug)]
enum Process {
    /// On this machine: the program, or the container runtime that runs it.
    Local(std::process::Child),
    /// Started by an agent.
    Remote(AgentProgram),
}

impl Child {
    /// Starts a program on this machine itself. It dies with the calling thread.
    ///
    /// # Errors
    /// The kernel does not start it.
    pub fn start(mut command: Command) -> io::Result<Self> {
        sys::child::die_with_parent(&mut command)
            .spawn()
            .map(Self::local)
    }

    pub(crate) fn local(process: std::process::Child) -> Self {
        Self::new(Process::Local(process))
    }

    pub(crate) fn remote(program: AgentProgram) -> Self {
        Self::new(Process::Remote(program))
    }

    fn new(process: Process) -> Self {
        Self {
            process,
            first_process: None,
            ready: None,
        }
    }

    /// Has it say at this socket that it is ready.
    pub(crate) fn listen(&mut self, ready: Option<NotifySocket>) {
        self.ready = ready;
    }

    /// Waits until it says that it is ready: false if it ends, or `timeout` passes, before.
    /// The program must have been started [`crate::Program::with_ready_notification`].
    pub fn wait_ready(&mut self, timeout: Duration) -> io::Result<bool> {
        let until = Instant::now() + timeout;
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
        match (&self.process, &self.ready) {
            (Process::Remote(program), _) => Ok(program.is_ready()),
            (Process::Local(_), Some(ready)) => Ok(ready.is_notified()),
            (Process::Local(_), None) => Err(io::Error::other(
                "the program was started without a ready notification",
            )),
        }
    }

    /// Directs signals to the first process of a container, whose runtime this child is.
    pub(crate) fn set_first_process(&mut self, process: Pid) {
        self.first_process = Some(process);
    }

    /// The process of this machine that its work is done by.
    pub fn id(&self) -> u32 {
        match (self.first_process, &self.process) {
            (Some(first), _) => first.as_raw().cast_unsigned(),
            (None, Process::Local(process)) => process.id(),
            (None, Process::Remote(program)) => program.outside(),
        }
    }

    /// The write end of its standard input, if that is a pipe.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        match &mut self.process {
            Process::Local(process) => process.stdin.take(),
            Process::Remote(program) => program.stdin.take(),
        }
    }

    pub fn stdout(&mut self) -> Option<ChildStdout> {
        match &mut self.process {
            Process::Local(process) => process.stdout.take(),
            Process::Remote(program) => program.stdout.take(),
        }
    }

    pub fn stderr(&mut self) -> Option<ChildStderr> {
        match &mut self.process {
            Process::Local(process) => process.stderr.take(),
            Process::Remote(program) => program.stderr.take(),
        }
    }

    /// Sends a signal to the whole group, or to the first process of a container.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if let Some(first) = self.first_process {
            // The whole container ends with its first process, and its runtime with the container.
            return Ok(kill(first, signal)?);
        }
        match &self.process {
            Process::Local(process) => {
                let group = Pid::from_raw(process.id().cast_signed());
                Ok(killpg(group, signal)?)
            }
            Process::Remote(program) => program.signal(signal),
        }
    }

    /// The exit status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.process {
            Process::Local(process) => process.try_wait(),
            Process::Remote(program) => Ok(program.status()),
        }
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.process {
            Process::Local(process) => process.wait(),
            Process::Remote(program) => Ok(program.wait()),
        }
    }

    /// Asks it to end (SIGTERM), and kills it when it has not after `timeout`.
    pub fn stop(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        let until = Instant::now() + timeout;
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
