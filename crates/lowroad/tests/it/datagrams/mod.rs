//! A program that receives frames as datagrams.

use std::io::{self, BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub(crate) struct Receiver {
    child: Child,
    /// Sends to it.
    pub(crate) sender: UdpSocket,
    /// Reads what else it says, so that it can go on saying it.
    rest: JoinHandle<()>,
}

impl Receiver {
    /// Ready to receive.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = "ready: frames as datagrams to ";
        let ready = said.find_map(|line| Some(line.unwrap().strip_prefix(ready)?.to_owned()));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(ready.unwrap()).unwrap();
        Self {
            child,
            sender,
            rest: thread::spawn(move || said.for_each(drop)),
        }
    }

    /// Whether it has ended by itself.
    pub(crate) fn ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Tells it to end.
    pub(crate) fn end(&self) {
        kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
    }

    /// What it has told at its end.
    pub(crate) fn output(self) -> Output {
        let output = self.child.wait_with_output().unwrap();
        self.rest.join().unwrap();
        output
    }
}
