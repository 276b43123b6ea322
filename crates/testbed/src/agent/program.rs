//! A program that an agent has started: its streams, its signals, its end.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use guest::{Kind, MAX_FRAME_LEN};
use nix::sys::signal::Signal;

use super::channel::Channel;
use super::notify::NotifyAddress;
use crate::process::program::{Program, Stream};

/// A running program of an agent.
#[derive(Debug)]
pub(crate) struct AgentProgram {
    channel: Arc<Channel>,
    number: u32,
    /// The process of this machine that its work is done by.
    outside: u32,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
}

impl AgentProgram {
    /// Starts it. `outside` is the process of this machine for the one with that id inside.
    pub(super) fn start(
        channel: &Arc<Channel>,
        program: Program,
        ready: Option<&NotifyAddress>,
        outside: impl FnOnce(u32) -> u32,
    ) -> io::Result<Self> {
        let number = channel.number();
        let mut words = Vec::new();
        if let Some(ready) = ready {
            channel.ask(number, [(Kind::Listen, ready.name.as_bytes())])?;
            if ready.in_environment {
                words.extend(ready.variable().into_bytes());
                words.push(0);
            }
        }
        words.push(0);
        for word in program.words() {
            words.extend(word.as_encoded_bytes());
            words.push(0);
        }
        // Before it starts: it may speak at once.
        let outputs = [Kind::Output, Kind::Errors].map(|kind| channel.listen(number, kind));
        let started = channel.ask(number, [(Kind::Start, words.as_slice())])?;
        let inside = started.value().map_or(0, |(id, _)| id.cast_unsigned());
        let [stdin, stdout, stderr] = program.streams();
        let [said, complained] = outputs;
        Ok(Self {
            channel: Arc::clone(channel),
            number,
            outside: outside(inside),
            stdin: feed(channel, number, stdin)?.map(ChildStdin::from),
            stdout: drain(said, stdout, || io::stdout().as_fd().try_clone_to_owned())?
                .map(ChildStdout::from),
            stderr: drain(complained, stderr, || {
                io::stderr().as_fd().try_clone_to_owned()
            })?
            .map(ChildStderr::from),
        })
    }

    pub(crate) fn outside(&self) -> u32 {
        self.outside
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let signal = (signal as i32).to_le_bytes();
        self.channel.send_frame(Kind::Signal, self.number, &signal)
    }

    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.channel.status(self.number)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.channel.is_ready(self.number)
    }

    pub(crate) fn wait(&self) -> ExitStatus {
        self.channel.wait(self.number)
    }
}

/// Forwards the program's input; returns the pipe to write it to, for a piped stream.
fn feed(channel: &Arc<Channel>, number: u32, stdin: Stream) -> io::Result<Option<OwnedFd>> {
    let (mut from, other): (Box<dyn Read + Send>, _) = match stdin {
        Stream::Null => {
            channel.send_frame(Kind::Input, number, &[])?;
            return Ok(None);
        }
        Stream::Inherited => (Box::new(io::stdin()), None),
        Stream::File(file) => (Box::new(file), None),
        Stream::Piped => {
            let (from, to) = io::pipe()?;
            (Box::new(from), Some(to.into()))
        }
    };
    let channel = Arc::clone(channel);
    thread::spawn(move || {
        let mut part = vec![0; MAX_FRAME_LEN];
        loop {
            let length = from.read(&mut part).unwrap_or(0);
            // The end of input is an empty part.
            if channel
                .send_frame(Kind::Input, number, &part[..length])
                .is_err()
                || length == 0
            {
                break;
            }
        }
    });
    Ok(other)
}

/// Forwards the program's output; returns the pipe to read it from, for a piped stream.
fn drain(
    said: Receiver<Vec<u8>>,
    to: Stream,
    inherited: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<Option<OwnedFd>> {
    let (mut to, other): (Box<dyn Write + Send>, _) = match to {
        Stream::Null => return Ok(None),
        Stream::Inherited => (Box::new(std::fs::File::from(inherited()?)), None),
        Stream::File(file) => (Box::new(file), None),
        Stream::Piped => {
            let (from, to) = io::pipe()?;
            (Box::new(to), Some(from.into()))
        }
    };
    thread::spawn(move || {
        for part in said {
            if to.write_all(&part).is_err() {
                break;
            }
        }
    });
    Ok(other)
}
