//! A `lowroad` that runs through a trial: it says when it is ready, and what it did once it is ended.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testbed::Child;

/// The time that a service has to start, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Service {
    child: Child,
    /// The service's own folder, for its output.
    folder: PathBuf,
}

impl Service {
    /// Starts it with JSON asked of it, and returns once it is ready.
    pub(super) fn start(mut command: Command, folder: PathBuf) -> Result<Self> {
        fs::create_dir(&folder)?;
        let ready = folder.join("ready");
        let notified = UnixDatagram::bind(&ready)?;
        notified.set_nonblocking(true)?;
        command
            .env("NOTIFY_SOCKET", &ready)
            .stdin(Stdio::null())
            .stdout(File::create(folder.join("said"))?)
            .stderr(File::create(folder.join("errors"))?);
        let child = Child::start(command).context("lowroad")?;
        let mut service = Self { child, folder };
        service.wait(|| notified.recv(&mut [0; 256]).is_ok())?;
        Ok(service)
    }

    /// Starts a program that does not notify of its readiness.
    pub(super) fn start_other(
        mut command: Command,
        folder: PathBuf,
        ready: impl FnMut() -> bool,
    ) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("errors"))?);
        let child = Child::start(command).with_context(|| name)?;
        let mut service = Self { child, folder };
        service.wait(ready)?;
        Ok(service)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The value of `what` in the last line that has one.
    pub(super) fn last_value(&self, what: &str) -> Result<Value> {
        let said = fs::read_to_string(self.folder.join("said"))?;
        let lines = said.lines().rev();
        let mut objects = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = objects.find_map(|mut object| Some(object.get_mut(what)?.take()));
        found.with_context(|| format!("{:?} has nothing about {what}", self.folder))
    }

    /// Ends it as a user would, and returns its account.
    pub(super) fn stop(mut self) -> Result<Value> {
        let status = self.child.stop(TIMEOUT)?;
        if !status.success() {
            bail!("{:?} ended with {status}: {}", self.folder, self.errors());
        }
        self.last_value("ended")
    }

    fn wait(&mut self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !ready() {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("{:?} did not start: {}", self.folder, self.errors());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn errors(&self) -> String {
        let said = fs::read_to_string(self.folder.join("errors")).unwrap_or_default();
        said.trim().to_owned()
    }
}
