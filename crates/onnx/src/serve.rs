//! A session: requests from the program's socket, replies to it, one model.

use std::io::{self, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::thread;

use datapath::{Classify, ErrorClass};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{dup2_stdin, dup2_stdout};
use onnx_protocol::frame::{self, Error as FrameError};
use onnx_protocol::memory::Memory;
use onnx_protocol::{Reply, Request, VERSION};

use crate::budget;
use crate::network::{LoadError, Network};

/// Why a session ended before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("standard input is not a socket: lowroad starts this program")]
    NotASocket,
    #[error("the program speaks version {0} of the protocol, and version {VERSION} is needed")]
    Version(u32),
    #[error("a request comes out of turn")]
    OutOfTurn,
    #[error("the program's request: {0}")]
    Request(FrameError),
    #[error("the reply: {0}")]
    Reply(FrameError),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotASocket => ErrorClass::Input,
            _ => ErrorClass::Failed,
        }
    }
}

/// Serves the program whose socket is standard input until it closes it.
pub(crate) fn run() -> Result<(), Error> {
    // The program decides when to end: a service manager signals both, while rows still wait for scores.
    let signals: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]
        .into_iter()
        .collect();
    signals.thread_block().map_err(io::Error::from)?;
    budget::dump_nothing()?;
    let socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    if socket.peer_addr().is_err() {
        return Err(Error::NotASocket);
    }
    let memory = Memory::from(stdout().as_fd().try_clone_to_owned()?);
    // What a library might print must not reach the memory file.
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null).map_err(io::Error::from)?;
    dup2_stdout(&null).map_err(io::Error::from)?;
    end_with_program(socket.try_clone()?)?;
    serve(&socket, memory)
}

/// Ends this process when the program has closed its socket, even while a batch is evaluated.
fn end_with_program(socket: UnixStream) -> io::Result<()> {
    let watch = move || {
        // Without any event asked for, poll returns when both directions are shut.
        let mut watched = [PollFd::new(socket.as_fd(), PollFlags::empty())];
        // An interrupted call is made again.
        while poll(&mut watched, PollTimeout::NONE).is_err() {}
        process::exit(0);
    };
    thread::Builder::new().spawn(watch).map(drop)
}

fn serve(mut socket: &UnixStream, mut memory: Memory) -> Result<(), Error> {
    let protocol = match next(&mut socket)? {
        None => return Ok(()),
        Some(Request::Hello { protocol }) => protocol,
        Some(_) => return Err(Error::OutOfTurn),
    };
    reply(socket, &Reply::Hello { protocol: VERSION })?;
    if protocol != VERSION {
        return Err(Error::Version(protocol));
    }
    let mut network = None;
    loop {
        let answer = match next(&mut socket)? {
            None | Some(Request::Bye) => return Ok(()),
            Some(Request::Load(model)) if network.is_none() => match Network::load(model) {
                Ok(loaded) => {
                    let operators = network.insert(loaded).operators();
                    Reply::Loaded { operators }
                }
                Err(LoadError::File(error)) => unreadable(&error),
                Err(LoadError::Model(reason)) => Reply::Invalid { reason },
            },
            Some(Request::Score { rows }) => {
                let network = network.as_ref().ok_or(Error::OutOfTurn)?;
                score(network, rows, &mut memory)?
            }
            Some(_) => return Err(Error::OutOfTurn),
        };
        reply(socket, &answer)?;
    }
}

/// The next request; none when the program has gone.
fn next(socket: &mut &UnixStream) -> Result<Option<Request>, Error> {
    match frame::read(socket) {
        Ok(request) => Ok(Some(request)),
        Err(FrameError::Closed) => Ok(None),
        Err(error) => Err(Error::Request(error)),
    }
}

fn reply(socket: &UnixStream, reply: &Reply) -> Result<(), Error> {
    frame::write(socket, reply).map_err(Error::Reply)
}

fn unreadable(error: &io::Error) -> Reply {
    match error.raw_os_error() {
        Some(errno) => Reply::Unreadable { errno },
        None => Reply::Invalid {
            reason: error.to_string(),
        },
    }
}

fn score(network: &Network, rows: usize, memory: &mut Memory) -> Result<Reply, Error> {
    budget::limit_scoring(rows)?;
    let columns = memory.read_inputs(rows, network.columns())?;
    match network.score(&columns) {
        Ok(scores) => memory.write_scores(&scores.probabilities, &scores.classes)?,
        Err(reason) => return Ok(Reply::Invalid { reason }),
    }
    Ok(Reply::Scored)
}
