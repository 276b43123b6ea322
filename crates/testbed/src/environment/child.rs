//! A program that runs in an environment.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A running program, head of its own process group. Dropping it kills the group.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    inside: Option<Box<dyn Inside>>,
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
        Self {
            process,
            inside: None,
        }
    }

    /// From now on, the process that was started stands for another.
    pub(super) fn stands_for(&mut self, inside: Box<dyn Inside>) {
        self.inside = Some(inside);
    }

    /// Of the program, on this machine.
    pub fn id(&self) -> u32 {
        match &self.inside {
            Some(inside) => inside.id().as_raw().cast_unsigned(),
            None => self.process.id(),
        }
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

    /// Sends a signal to the whole group, or to the one that runs inside.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if let Some(inside) = &self.inside {
            return inside.signal(signal);
        }
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
