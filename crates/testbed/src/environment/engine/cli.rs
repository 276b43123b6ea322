//! An engine's command line, and how long it may take to answer.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use datapath::Missing;

use crate::agent::binary::agent;
use crate::network::root;
use crate::process::program::find;

/// An engine that does not answer for so long hangs.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(1);
/// The error for an engine whose containers are not processes of this machine.
pub(super) const ELSEWHERE: &str = "its containers are on another machine";

/// A container engine.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The name of its program, and of its kind of environment.
    pub(in crate::environment) name: &'static str,
    /// The name of one of its containers in errors.
    pub(in crate::environment) container: &'static str,
    /// Where its version is.
    pub(in crate::environment) version: &'static str,
    /// The default network of its containers.
    pub(in crate::environment) bridge: &'static str,
    /// Arguments of its `run` beside those of every engine.
    pub(in crate::environment) run: &'static [&'static str],
    /// The one command that brings it.
    pub(in crate::environment) remedy: &'static str,
}

impl Engine {
    /// Why it runs no containers here.
    pub(in crate::environment) fn probe(&self) -> Result<(), Missing> {
        root()?;
        if !self.is_installed() {
            let what = format!("{} is not installed", self.name);
            return Err(Missing::new(what, self.remedy));
        }
        self.version()
            .map_err(|why| Missing::new(format!("no engine answers: {why}"), self.remedy))?;
        agent().map(drop)
    }

    pub(super) fn is_installed(&self) -> bool {
        find(Path::new(self.name)).is_some()
    }

    pub(super) fn version(&self) -> Result<String, String> {
        self.ask(&["version", "--format", self.version])
    }

    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.name);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// The output of a command, or why the engine did not carry it out.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String, String> {
        answer(self.command(words))
    }

    /// The same, line by line.
    pub(super) fn lines(&self, words: &[&str]) -> Result<Vec<String>, String> {
        Ok(self.ask(words)?.lines().map(str::to_owned).collect())
    }
}

/// The output of a command that ends by itself, or the last line of its errors.
pub(super) fn answer(mut command: Command) -> Result<String, String> {
    let started = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let output = started
        .and_then(within)
        .map_err(|error| error.to_string())?;
    let last = |said: &[u8]| {
        let said = String::from_utf8_lossy(said);
        said.lines().last().unwrap_or_default().trim().to_owned()
    };
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(last(&output.stderr)),
    }
}

fn within(mut command: std::process::Child) -> io::Result<Output> {
    let begun = Instant::now();
    let (said, complained) = (command.stdout.take(), command.stderr.take());
    let read = |from: Option<Box<dyn io::Read + Send>>| {
        thread::spawn(move || {
            let mut all = Vec::new();
            from.map(|mut from| from.read_to_end(&mut all));
            all
        })
    };
    let said = read(said.map(|from| Box::new(from) as _));
    let complained = read(complained.map(|from| Box::new(from) as _));
    let status = loop {
        if let Some(status) = command.try_wait()? {
            break status;
        }
        if begun.elapsed() > TIMEOUT {
            command.kill()?;
            command.wait()?;
            let seconds = TIMEOUT.as_secs();
            return Err(io::Error::other(format!("it is silent for {seconds} s")));
        }
        thread::sleep(TICK);
    };
    let joined = |reader: thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Output {
        status,
        stdout: joined(said),
        stderr: joined(complained),
    })
}
