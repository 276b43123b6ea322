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
        Self { process }
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
