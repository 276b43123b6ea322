//! Container engines as their users run them, by their command lines: what docker and podman have in common.
//!
//! The image is made here, of the agent alone. A container starts once, waits for the next bed while somebody
//! holds [`crate::Kept`], and runs what each bed asks its agent for.

mod bridge;
mod container;
mod image;
mod left;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use datapath::Missing;
use serde_json::Value;

use self::container::Shape;
pub(crate) use self::container::{Container, WAITING};
pub(crate) use self::image::IMAGES;
use self::image::Image;
pub(crate) use self::left::clean;
use super::{Child, Environment, Network, Program, Published, Wanted, find, root};
use crate::Error;
use crate::served::{self, Served};

/// An engine that does not answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(1);
/// What is said of an engine whose containers are no processes of this machine.
const ELSEWHERE: &str = "its containers are on another machine";

/// A container engine.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Of its program, and of its kind of environment.
    pub(super) name: &'static str,
    /// What errors call one of its containers.
    pub(super) container: &'static str,
    /// Where its version is.
    pub(super) version: &'static str,
    /// The network that containers are on where nothing else is asked for.
    pub(super) bridge: &'static str,
    /// What its `run` needs beside what all engines' do.
    pub(super) run: &'static [&'static str],
    /// The one command that brings it.
    pub(super) remedy: &'static str,
    /// Shared by the containers of this process.
    pub(super) image: Mutex<Weak<Image>>,
}

/// Every engine there is.
const ENGINES: [&Engine; 2] = [&super::docker::ENGINE, &super::podman::ENGINE];

impl Engine {
    /// Why it runs no containers here.
    pub(super) fn probe(&self) -> Result<(), Missing> {
        root()?;
        if !self.is_installed() {
            let what = format!("{} is not installed", self.name);
            return Err(Missing::new(what, self.remedy));
        }
        self.version()
            .map_err(|why| Missing::new(format!("no engine answers: {why}"), self.remedy))?;
        served::agent().map(drop)
    }

    pub(super) fn up(&'static self, wanted: Wanted<'_>) -> Result<Box<dyn Environment>, Error> {
        let shape = Shape {
            engine: self.name,
            cpus: wanted.cpus.to_vec(),
            publish: wanted.publish.to_vec(),
            capabilities: wanted.capabilities.to_vec(),
        };
        let container = match container::take(&shape) {
            Some(container) => container,
            None => {
                self.probe()?;
                Container::run(self, shape)?
            }
        };
        Ok(Box::new(Lent(Some(container))))
    }

    fn is_installed(&self) -> bool {
        find(Path::new(self.name)).is_some()
    }

    fn version(&self) -> Result<String, String> {
        self.ask(&["version", "--format", self.version])
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.name);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// What it says to a command; or why it did not carry it out.
    fn ask(&self, words: &[&str]) -> Result<String, String> {
        answer(self.command(words))
    }

    /// The same, line by line.
    fn lines(&self, words: &[&str]) -> Result<Vec<String>, String> {
        Ok(self.ask(words)?.lines().map(str::to_owned).collect())
    }
}

/// What a command prints, or the last line of what it complains of. It has to end by itself.
fn answer(mut command: Command) -> Result<String, String> {
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
        if begun.elapsed() > PATIENCE {
            command.kill()?;
            command.wait()?;
            let seconds = PATIENCE.as_secs();
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

/// A host's container, for as long as the bed stands.
#[derive(Debug)]
struct Lent(Option<Container>);

impl Lent {
    fn container(&self) -> &Container {
        self.0.as_ref().expect("it is there until dropped")
    }
}

impl Environment for Lent {
    fn network(&self) -> &Network {
        self.container().network()
    }

    fn start(&self, program: Program) -> io::Result<Child> {
        self.container().start(program)
    }

    fn published(&self) -> Option<&Published> {
        self.container().published()
    }

    fn served(&self) -> Option<&Served> {
        Some(self.container().served())
    }

    fn facts(&self) -> BTreeMap<&'static str, Value> {
        self.container().facts()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(container) = self.0.take() {
            container.give_back();
        }
    }
}

/// A name that its owner is told by.
fn unique(engine: &Engine) -> String {
    crate::clean::unique(engine.name)
}
