//! A program's arm at work: its set-up, its command until it is ready, and its end with everything that it started.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::owner::Owner;
use testbed::{Child, Host};

use super::program::{ProgramArm, Ready};
use super::teardown::TeardownGuard;
use super::template::Values;
use crate::outcome::Outcome;
use crate::program::children_cpu;

/// Every process of an arm has this variable. A daemon leaves its process group, and keeps its environment; some programs
/// overwrite their environment, and stay in the group.
pub(super) const MARK: &str = "LOWROAD_ARM";
/// How much of the end of a program's output is kept.
const OUTPUT_CAPACITY: usize = 16 << 10;
/// The same of a client, whose output has its results.
const CLIENT_OUTPUT_CAPACITY: usize = 1 << 20;
/// A client has started its processes after this time.
const CLIENT_START: Duration = Duration::from_millis(50);
/// How much of it an error shows.
const ERROR_LINES: usize = 5;
const MAX_ERROR_CHARS: usize = 600;
/// How long a program has to end once it is asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long processes that were killed may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last of an output may be on its way.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(1);
/// The file with the end of the command's output, for the command that counts packets.
const OUTPUT_FILE: &str = "output";

/// Where a program's commands run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// In a host's network, on its CPUs.
    Host(&'a Host),
    /// On this machine itself.
    Machine,
}

impl Place<'_> {
    fn start(self, command: Command) -> Result<Child> {
        match self {
            Self::Host(host) => Ok(host.spawn(command)?),
            Self::Machine => {
                let name = command.get_program().to_string_lossy().into_owned();
                Child::start(command).with_context(|| format!("starting {name}"))
            }
        }
    }

    /// The network that only the program is in.
    fn network(self) -> Result<Option<u64>> {
        match self {
            Self::Host(host) => Ok(Some(host.namespace().inode()?)),
            Self::Machine => Ok(None),
        }
    }

    /// Whether a table of sockets below `/proc/net` has a line for which `is_bound`.
    fn has_socket(self, tables: [&str; 2], is_bound: impl Fn(&str) -> bool) -> Result<bool> {
        let read = |table: &str| {
            let path = format!("/proc/thread-self/net/{table}");
            match self {
                Self::Host(host) => Ok(host.read(&path)?),
                Self::Machine => fs::read_to_string(&path).with_context(|| path.clone()),
            }
        };
        for table in tables {
            if read(table)?.lines().any(&is_bound) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The time and CPU of a command that ended by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramCost {
    pub(crate) wall: Duration,
    /// CPU of the program and of all its processes that it has waited for.
    pub(crate) cpu: Duration,
}

/// A program's arm at work. Dropping it kills everything that it started, and runs its tear-down.
#[derive(Debug)]
pub(crate) struct ProgramProcess {
    arm: ProgramArm,
    values: Values,
    folder: PathBuf,
    mark: String,
    /// Networks that are the arm's alone: whatever runs there belongs to it.
    networks: BTreeSet<u64>,
    child: Option<Child>,
    output: Output,
    settings: String,
    /// Dropped last: all else has ended then.
    teardown: Option<TeardownGuard>,
}

impl ProgramProcess {
    /// Writes the arm's files, runs its set-up, and starts its command. Returns once that is ready.
    ///
    /// `folder` is the value of `{folder}`: every command works in this process's own working directory.
    pub(crate) fn start(
        arm: &ProgramArm,
        place: Place<'_>,
        mut values: Values,
        folder: &Path,
    ) -> Result<Self> {
        values.insert("folder", vec![folder.display().to_string()]);
        values.insert("here", vec![arm.here.display().to_string()]);
        let mut process = Self::prepare(arm, place, values, folder)?;
        let Some(command) = &arm.command else {
            return Ok(process);
        };
        let command = command.command(&process.values)?;
        let output = process.output.clone();
        process.child = Some(process.spawn(place, command, &output, None)?);
        process.wait_ready(place)?;
        Ok(process)
    }

    /// As [`Self::start`], without the command.
    fn prepare(arm: &ProgramArm, place: Place<'_>, values: Values, folder: &Path) -> Result<Self> {
        for (name, text) in &arm.files {
            let path = folder.join(name);
            fs::write(&path, text.expand(&values)?).with_context(|| path.display().to_string())?;
        }
        let commands = [&arm.setup, &arm.command, &arm.client];
        let commands = commands.into_iter().flatten();
        let settings = commands.map(|command| Ok(command.words(&values)?.join(" ")));
        let settings = settings.collect::<Result<Vec<String>>>()?.join("; ");
        let (mark, output) = (mark(), Output::default());
        // Due from here on: a set-up that fails may have done a part of its work.
        let teardown = TeardownGuard::new(arm, place, (&mark, &values), &output)?;
        let process = Self {
            arm: arm.clone(),
            values,
            folder: folder.to_owned(),
            mark,
            networks: place.network()?.into_iter().collect(),
            child: None,
            output,
            settings,
            teardown,
        };
        if let Some(setup) = &arm.setup {
            let command = setup.command(&process.values)?;
            let output = process.output.clone();
            process.run(place, command, ("setup", &output), None)?;
        }
        Ok(process)
    }

    /// The address that the command has printed, where that is how it is ready.
    pub(crate) fn address(&self) -> Result<Option<SocketAddr>> {
        let Some(Ready::Address(text)) = &self.arm.ready else {
            return Ok(None);
        };
        let text = text.expand(&self.values)?;
        let output = self.output.text();
        // The last line may be half written yet.
        let whole = &output[..output.rfind('\n').unwrap_or(0)];
        Ok(whole.lines().find_map(|line| {
            let (_, after) = line.split_once(&text)?;
            after.split_whitespace().next()?.parse().ok()
        }))
    }

    /// All its processes: they are the trial's own.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let group = self.child.as_ref().map(|child| members(child.id()));
        let all: BTreeSet<u32> = self
            .processes()
            .into_iter()
            .chain(group.into_iter().flatten())
            .collect();
        all.into_iter().collect()
    }

    /// The processes that carry its mark or are in its networks.
    fn processes(&self) -> Vec<u32> {
        let networks = self.networks.iter().copied();
        let inside = networks.flat_map(sys::netns::processes_in);
        let inside = inside.map(i32::cast_unsigned);
        // A thread of this process may be there to look.
        let inside = inside.filter(|&pid| pid != std::process::id());
        inside.chain(processes_with(&self.mark)).collect()
    }

    /// The threads of all its processes.
    pub(crate) fn tasks(&self) -> Vec<u32> {
        let tasks = self.pids().into_iter().flat_map(|pid| {
            let entries = fs::read_dir(format!("/proc/{pid}/task"));
            entries.into_iter().flatten().flatten()
        });
        let ids = tasks.map(|entry| entry.file_name());
        ids.filter_map(|id| id.to_str()?.parse().ok()).collect()
    }

    /// Notes what ran and the end of its output.
    ///
    /// # Errors
    /// The command has ended by itself.
    pub(crate) fn note(&mut self, outcome: &mut Outcome) -> Result<()> {
        self.check()?;
        let output = self.output.text();
        let facts = [("program", self.settings.clone()), ("output", output)];
        let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
        let facts = facts.map(|(name, text)| (name.to_owned(), text.into()));
        outcome.environment.extend(facts);
        Ok(())
    }

    /// Fails when the command has ended by itself.
    fn check(&mut self) -> Result<()> {
        let ended = self.child.as_mut().map(Child::try_wait).transpose()?;
        match ended.flatten() {
            Some(status) => Err(self.failure(&format!("ended during the trial with {status}"))),
            None => Ok(()),
        }
    }

    /// Ends the command and everything that it started, and runs the tear-down.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()?;
        self.tear_down()
    }

    /// As [`Self::stop`]; returns how many packets the command has seen by its own account.
    pub(crate) fn count(mut self, place: Place<'_>) -> Result<u64> {
        self.end()?;
        let packets = self.arm.packets.clone();
        let packets = packets.with_context(|| format!("{} counts no packets", self.arm.name))?;
        let path = self.folder.join(OUTPUT_FILE);
        fs::write(&path, self.output.text()).with_context(|| path.display().to_string())?;
        let (said, printed) = (Output::default(), Output::default());
        let command = packets.command(&self.values)?;
        self.run(place, command, ("packets", &said), Some(&printed))?;
        let text = printed.text();
        let count = text.trim().parse();
        let count = count.map_err(|_| {
            let said = last_lines(&text);
            anyhow!(
                "{}: packets printed {said:?}, which is not a number",
                self.arm.name
            )
        })?;
        self.tear_down()?;
        Ok(count)
    }

    /// Runs a command that ends by itself, between set-up and tear-down, and returns what it takes without them.
    pub(crate) fn run_to_end(
        arm: &ProgramArm,
        place: Place<'_>,
        mut values: Values,
        folder: &Path,
        outcome: &mut Outcome,
    ) -> Result<ProgramCost> {
        values.insert("folder", vec![folder.display().to_string()]);
        values.insert("here", vec![arm.here.display().to_string()]);
        let mut process = Self::prepare(arm, place, values, folder)?;
        let command = arm.command.as_ref();
        let command = command.with_context(|| format!("{} has no command", arm.name))?;
        let command = command.command(&process.values)?;
        let output = process.output.clone();
        let (cpu, begun) = (children_cpu()?, Instant::now());
        let ended = process.run(place, command, ("command", &output), None)?;
        let cost = ProgramCost {
            wall: ended - begun,
            cpu: children_cpu()?.saturating_sub(cpu),
        };
        process.end()?;
        process.note(outcome)?;
        process.tear_down()?;
        Ok(cost)
    }

    /// Runs the client to its end while the command serves, for at most its duration and the arm's time. Returns its
    /// standard output, and the processes of both ends.
    pub(crate) fn run_client(
        &mut self,
        place: Place<'_>,
        duration: Duration,
    ) -> Result<(String, Vec<u32>)> {
        let client = self.arm.client.as_ref();
        let client = client.with_context(|| format!("{} has no client", self.arm.name))?;
        let command = client.command(&self.values)?;
        let (said, printed) = (
            Output::default(),
            Output::with_capacity(CLIENT_OUTPUT_CAPACITY),
        );
        self.networks.extend(place.network()?);
        let mut child = self.spawn(place, command, &said, Some(&printed))?;
        thread::sleep(CLIENT_START);
        let pids = self.pids();
        let limit = duration + self.arm.timeout;
        wait_end(&mut child, limit, (&self.arm.name, "client"), &said)?;
        printed.settle();
        Ok((printed.text(), pids))
    }

    fn end(&mut self) -> Result<()> {
        let mut group = Vec::new();
        if let Some(mut child) = self.child.take() {
            let head = child.id();
            group = members(head);
            child.stop(STOP_TIMEOUT)?;
            // The group's number is not given to others while one of it is left.
            group.retain(|&pid| process_group(pid) == Some(head));
        }
        self.kill_rest(&group)?;
        self.output.settle();
        Ok(())
    }

    fn tear_down(&mut self) -> Result<()> {
        self.teardown.as_ref().map_or(Ok(()), TeardownGuard::run)?;
        self.kill_rest(&[])
    }

    /// Runs a command to its end, within the arm's time, and returns when it ended. What it prints goes to `output`, and
    /// its standard output also to `printed`.
    fn run(
        &self,
        place: Place<'_>,
        command: Command,
        (what, output): (&str, &Output),
        printed: Option<&Output>,
    ) -> Result<Instant> {
        let mut child = self.spawn(place, command, output, printed)?;
        let ended = wait_end(&mut child, self.arm.timeout, (&self.arm.name, what), output)?;
        printed.into_iter().for_each(Output::settle);
        Ok(ended)
    }

    fn spawn(
        &self,
        place: Place<'_>,
        mut command: Command,
        output: &Output,
        printed: Option<&Output>,
    ) -> Result<Child> {
        command.env(MARK, &self.mark);
        output.connect(&mut command, printed)?;
        place.start(command).with_context(|| self.arm.name.clone())
    }

    fn wait_ready(&mut self, place: Place<'_>) -> Result<()> {
        let Some(ready) = self.arm.ready.clone() else {
            return Ok(());
        };
        let deadline = Instant::now() + self.arm.timeout;
        loop {
            if self.is_ready(&ready, place)? {
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?;
            if let Some(status) = ended.flatten() {
                let what = format!("ended with {status} before it was ready");
                return Err(self.failure(&what));
            }
            if Instant::now() > deadline {
                let what = format!(
                    "was not ready after {} s: {}",
                    self.arm.timeout.as_secs_f64(),
                    ready.describe(&self.values)?
                );
                return Err(self.failure(&what));
            }
            thread::sleep(TICK);
        }
    }

    fn is_ready(&self, ready: &Ready, place: Place<'_>) -> Result<bool> {
        let port = |text: String| -> Result<u16> {
            text.trim()
                .parse()
                .map_err(|_| anyhow!("{}: ready: {text:?} is not a port", self.arm.name))
        };
        match ready {
            Ready::Line(text) => Ok(self.output.has_line(&text.expand(&self.values)?)),
            Ready::Address(_) => Ok(self.address()?.is_some()),
            Ready::File(path) => {
                let path = PathBuf::from(path.expand(&self.values)?);
                Ok(self.folder.join(path).exists())
            }
            Ready::Udp(text) => {
                let port = port(text.expand(&self.values)?)?;
                place.has_socket(["udp", "udp6"], |line| local_port(line) == Some(port))
            }
            Ready::Tcp(text) => {
                let port = port(text.expand(&self.values)?)?;
                place.has_socket(["tcp", "tcp6"], |line| {
                    local_port(line) == Some(port) && is_listening(line)
                })
            }
        }
    }

    fn failure(&self, what: &str) -> anyhow::Error {
        self.output.failure(&self.arm.name, what)
    }

    /// Kills these processes, and what else is left of the arm's until nothing is.
    fn kill_rest(&self, first: &[u32]) -> Result<()> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        let mut rest = first.to_vec();
        loop {
            rest.extend(self.processes());
            if rest.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{}: processes {rest:?} do not end",
                self.arm.name
            );
            for pid in rest.drain(..) {
                // It may have ended meanwhile.
                let _gone = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            thread::sleep(TICK);
        }
    }
}

impl Drop for ProgramProcess {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("{error:#}");
        }
    }
}

/// Waits until a command of an arm has ended well, and returns when it did.
pub(super) fn wait_end(
    child: &mut Child,
    limit: Duration,
    (arm, what): (&str, &str),
    output: &Output,
) -> Result<Instant> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            let ended = Instant::now();
            if status.success() {
                output.settle();
                return Ok(ended);
            }
            return Err(output.failure(arm, &format!("{what} ended with {status}")));
        }
        if Instant::now() > deadline {
            let seconds = limit.as_secs_f64();
            let what = format!("{what} took more than {seconds} s");
            return Err(output.failure(arm, &what));
        }
        thread::sleep(TICK);
    }
}

/// A text that only the processes of one arm of one trial have.
fn mark() -> String {
    static ARMS: AtomicU32 = AtomicU32::new(0);
    let number = ARMS.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", Owner::current())
}

/// The processes of a group.
fn members(group: u32) -> Vec<u32> {
    let pids = processes().filter(|&pid| process_group(pid) == Some(group));
    pids.collect()
}

/// The group of a process, the third word after its name in brackets.
fn process_group(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(2)?.parse().ok()
}

/// Every process of this machine.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The processes with this mark in their environment; zombies have none.
pub(super) fn processes_with(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let has_mark = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    };
    processes().filter(has_mark).collect()
}

/// The local port of a line of `/proc/net/udp` or `tcp`.
fn local_port(line: &str) -> Option<u16> {
    let address = line.split_whitespace().nth(1)?;
    let (_, port) = address.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

/// Whether a line of `/proc/net/tcp` is of a socket that listens.
fn is_listening(line: &str) -> bool {
    line.split_whitespace().nth(3) == Some("0A")
}

/// The end of a program's output, as threads read it.
#[derive(Clone, Debug)]
pub(super) struct Output(Arc<Mutex<OutputTail>>);

#[derive(Debug, Default)]
struct OutputTail {
    bytes: VecDeque<u8>,
    /// How many of them are kept.
    capacity: usize,
    /// Pipes that are still read.
    pipes: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self::with_capacity(OUTPUT_CAPACITY)
    }
}

impl Output {
    fn with_capacity(capacity: usize) -> Self {
        Self(Arc::new(Mutex::new(OutputTail {
            capacity,
            ..OutputTail::default()
        })))
    }

    /// Has a command print to it, and its standard output also to `printed`.
    pub(super) fn connect(&self, command: &mut Command, printed: Option<&Self>) -> Result<()> {
        let (pipe, input) = nix::unistd::pipe()?;
        command.stdin(Stdio::null()).stderr(input.try_clone()?);
        match printed {
            None => {
                command.stdout(input);
            }
            Some(printed) => {
                drop(input);
                let (pipe, input) = nix::unistd::pipe()?;
                command.stdout(input);
                follow(pipe, vec![self.clone(), printed.clone()]);
            }
        }
        follow(pipe, vec![self.clone()]);
        Ok(())
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        kept.bytes.extend(bytes);
        let excess = kept.bytes.len().saturating_sub(kept.capacity);
        kept.bytes.drain(..excess);
    }

    fn lock(&self) -> MutexGuard<'_, OutputTail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn text(&self) -> String {
        let mut kept = self.lock();
        String::from_utf8_lossy(kept.bytes.make_contiguous()).into_owned()
    }

    /// Waits for the last of what an ended program has printed; a daemon that it started may keep its pipe open.
    pub(super) fn settle(&self) {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        while self.lock().pipes > 0 && Instant::now() < deadline {
            thread::sleep(TICK);
        }
    }

    /// An error of one line with the end of what was printed.
    fn failure(&self, name: &str, what: &str) -> anyhow::Error {
        self.settle();
        let said = last_lines(&self.text());
        match said.as_str() {
            "" => anyhow!("{name} {what}; it printed nothing"),
            said => anyhow!("{name} {what}; it printed: {said}"),
        }
    }

    fn has_line(&self, text: &str) -> bool {
        self.text().lines().any(|line| line.contains(text))
    }
}

/// Keeps what comes through the pipe until all its writers are gone.
fn follow(pipe: OwnedFd, outputs: Vec<Output>) {
    for output in &outputs {
        output.lock().pipes += 1;
    }
    thread::spawn(move || {
        let mut pipe = fs::File::from(pipe);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            outputs
                .iter()
                .for_each(|output| output.push(&buffer[..length]));
        }
        for output in &outputs {
            output.lock().pipes -= 1;
        }
    });
}

/// The last lines of an output as one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(ERROR_LINES)..].join(" | ");
    match last.char_indices().rev().nth(MAX_ERROR_CHARS) {
        Some((at, _)) => format!("..{}", &last[at..]),
        None => last,
    }
}
