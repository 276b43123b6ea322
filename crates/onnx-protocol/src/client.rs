//! The evaluator as a child process: started with a model, asked for scores, and ended when dropped.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use datapath::Missing;
use nix::sys::signal::Signal;

use crate::find::missing;
use crate::frame::{self, Error as FrameError};
use crate::memory::{Memory, rows_at_once};
use crate::{Model, PROGRAM, Reply, Request, Search, VERSION};

/// How long a program may take to answer the greeting, and to accept a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an evaluator may take to end before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);

/// A process that evaluates one model.
#[derive(Debug)]
pub struct Evaluator {
    process: Process,
    memory: Memory,
    classes: usize,
    columns: usize,
    operators: usize,
    /// Why it has ended before its time.
    ended: Option<String>,
}

/// For each row, its class and how probable that is; NaN where the model has no answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    pub classes: Vec<usize>,
    pub probabilities: Vec<f64>,
}

/// Why there is no evaluator for a model.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No evaluator runs on this machine.
    #[error("{}; {}", .0.what, .0.remedy)]
    Missing(Missing),
    #[error(transparent)]
    Unreadable(io::Error),
    /// What is wrong with the model; goes on after its name.
    #[error("{0}")]
    Invalid(String),
}

/// Why rows have no scores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// The model has no answer; goes on after its name.
    #[error("{0}")]
    Invalid(String),
    /// The evaluator has ended, and every later call has the same error; goes on after its name.
    #[error("{0}")]
    Ended(String),
}

impl Evaluator {
    /// Starts a process and has it load the model.
    pub fn load(search: &Search, model: Model) -> Result<Self, LoadError> {
        let program = search.find().map_err(LoadError::Missing)?;
        let memory = Memory::new().map_err(|error| not_started(&program, &error))?;
        let mut process = Process::start(&program, &memory)?;
        process.greet(&program)?;
        let (classes, columns) = (model.classes.len(), model.columns.len());
        let operators = match process.ask(&Request::Load(model)) {
            Ok(Reply::Loaded { operators }) => operators,
            Ok(Reply::Unreadable { errno }) => {
                return Err(LoadError::Unreadable(io::Error::from_raw_os_error(errno)));
            }
            Ok(Reply::Invalid { reason }) => return Err(LoadError::Invalid(reason)),
            Ok(_) => return Err(LoadError::Invalid(process.fail(None))),
            Err(error) => {
                let ended = process.fail(Some(error));
                let what = format!("is not evaluated here: {PROGRAM} {ended}");
                return Err(LoadError::Invalid(what));
            }
        };
        Ok(Self {
            process,
            memory,
            classes,
            columns,
            operators,
            ended: None,
        })
    }

    /// Operators that are evaluated for each batch.
    pub fn operators(&self) -> usize {
        self.operators
    }

    /// Scores rows, given the values of all columns, which are of one length.
    pub fn score(&mut self, columns: &[Vec<f64>]) -> Result<Scores, ScoreError> {
        let rows = columns.first().map_or(0, Vec::len);
        let mut scores = Scores::default();
        for first in (0..rows).step_by(rows_at_once(self.columns)) {
            let part = rows_at_once(self.columns).min(rows - first);
            self.score_part(columns, first, part, &mut scores)?;
        }
        Ok(scores)
    }

    fn score_part(
        &mut self,
        columns: &[Vec<f64>],
        first: usize,
        rows: usize,
        scores: &mut Scores,
    ) -> Result<(), ScoreError> {
        if let Some(ended) = &self.ended {
            return Err(ScoreError::Ended(ended.clone()));
        }
        let written = self.memory.write_inputs(columns, first, rows);
        let reply = written
            .map_err(FrameError::Io)
            .and_then(|()| self.process.ask(&Request::Score { rows }));
        let error = match reply {
            Ok(Reply::Scored) => match self.memory.read_scores(rows) {
                Ok((probabilities, classes)) if self.are_classes(&classes) => {
                    scores.probabilities.extend(probabilities);
                    let classes = classes.into_iter().map(|class| class as usize);
                    scores.classes.extend(classes);
                    return Ok(());
                }
                Ok(_) => None,
                Err(error) => Some(FrameError::Io(error)),
            },
            Ok(Reply::Invalid { reason }) => return Err(ScoreError::Invalid(reason)),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        let ended = self.process.fail(error);
        self.ended = Some(ended.clone());
        Err(ScoreError::Ended(ended))
    }

    fn are_classes(&self, numbers: &[u32]) -> bool {
        numbers.iter().all(|class| (*class as usize) < self.classes)
    }
}

/// The child and the socket to it.
#[derive(Debug)]
struct Process {
    child: Child,
    socket: UnixStream,
    reaped: bool,
}

impl Process {
    fn start(program: &Path, memory: &Memory) -> Result<Self, LoadError> {
        let spawn = || {
            let (socket, theirs) = UnixStream::pair()?;
            socket.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
            let file = memory.as_fd().try_clone_to_owned()?;
            let mut command = Command::new(program);
            command
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::from(file))
                // A Ctrl-C is for the program, which then still has rows to score.
                .process_group(0);
            // The command holds the other end of the socket and must be dropped before the socket is read.
            let child = command.spawn()?;
            Ok(Self {
                child,
                socket,
                reaped: false,
            })
        };
        spawn().map_err(|error: io::Error| not_started(program, &error))
    }

    /// Checks that the program is an evaluator of this protocol.
    fn greet(&mut self, program: &Path) -> Result<(), LoadError> {
        let hello = Request::Hello { protocol: VERSION };
        let limited = self.socket.set_read_timeout(Some(HANDSHAKE_TIMEOUT));
        let reply = limited
            .map_err(FrameError::Io)
            .and_then(|()| self.ask(&hello));
        let why = match reply {
            Ok(Reply::Hello { protocol: VERSION }) => {
                let unlimited = self.socket.set_read_timeout(None);
                return unlimited.map_err(|error| not_started(program, &error));
            }
            Ok(Reply::Hello { protocol }) => format!(
                "speaks version {protocol} of the protocol, and version {VERSION} is needed"
            ),
            Ok(_) => "does not speak the protocol".to_owned(),
            Err(FrameError::Closed | FrameError::Truncated) => match self.end() {
                Ok(status) => format!("ended before it answered ({status})"),
                Err(error) => format!("ended before it answered: {error}"),
            },
            Err(FrameError::Io(error)) => format!("does not answer: {error}"),
            Err(error) => format!("does not speak the protocol: {error}"),
        };
        // It is no evaluator, and need not be asked to end.
        let _status = self.end();
        let what = format!("{} {why}", program.display());
        Err(LoadError::Missing(missing(what)))
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, FrameError> {
        frame::write(&self.socket, request)?;
        frame::read(&mut &self.socket)
    }

    /// Ends the child after an error, or after a reply that does not follow the protocol. Says what has happened, to
    /// go on after the child's name.
    fn fail(&mut self, error: Option<FrameError>) -> String {
        let status = self.end();
        match error {
            Some(FrameError::Closed | FrameError::Truncated) => match status {
                Ok(status) if status.signal() == Some(Signal::SIGXCPU as i32) => format!(
                    "ended early ({status}): the model takes more CPU time than one of its size may"
                ),
                Ok(status) if status.signal() == Some(Signal::SIGABRT as i32) => format!(
                    "ended early ({status}): the model takes more memory than one of its size may, or is nested too deep"
                ),
                Ok(status) => format!(
                    "ended early ({status}): start again; if memory was short, the kernel's log says so"
                ),
                Err(error) => format!("ended early, and its status is unknown: {error}"),
            },
            Some(error) => format!("was ended: {error}; install the one of this version"),
            None => {
                "was ended: its reply does not follow the protocol; install the one of this version"
                    .to_owned()
            }
        }
    }

    /// Kills the child unless it has ended. Its status stays what it was if it is about to end by itself.
    fn end(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // The socket is closed from the other side when the child ends.
        let asked = frame::write(&self.socket, &Request::Bye);
        if asked.is_ok() && self.socket.set_read_timeout(Some(FAREWELL)).is_ok() {
            let _closed = self.socket.read(&mut [0; 64]);
        }
        let _status = self.end();
    }
}

fn not_started(program: &Path, error: &io::Error) -> LoadError {
    LoadError::Missing(missing(format!(
        "{} does not start: {error}",
        program.display()
    )))
}
