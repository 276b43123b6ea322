//! The `recv` datapath: one system call for each frame. The portable baseline.

use std::io;

use datapath::{Datapath, Error, Missing};
use netdev::requirement;
use packet::pcap::Frame;
use sys::capture::{Capture, Socket, Statistics};

use super::frame_reader::Source;
use super::group::{self, Member};
use super::worker::{POLL_TIMEOUT, Workers};
use super::{CAPTURE, Features, Plan, Running};

/// The longest frame that a device hands up: 64 KiB and its headers.
const MAX_FRAME: usize = 66_000;
/// Room for what arrives while this thread does not run.
const BUFFER: usize = 8 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Recv;

impl Datapath<Features> for Recv {
    fn name(&self) -> &'static str {
        "recv"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(CAPTURE)
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        super::wakes_by_itself(self.name(), plan)?;
        plan.without_model(self.name())?;
        plan.check_socket(self.name())?;
        let framed = group::open::<Sockets>(plan, 1)?;
        Workers::start(self.name(), plan.ifindex, framed)
    }
}

#[derive(Debug)]
struct Sockets {
    socket: Socket,
    room: Vec<u8>,
    link_type: u32,
}

impl Member for Sockets {
    fn open(capture: &Capture) -> io::Result<Self> {
        let socket = Socket::open()?;
        socket.prepare_receive(POLL_TIMEOUT)?;
        sys::socket::receive_buffer(&socket, BUFFER)?;
        socket.bind(capture)?;
        Ok(Self {
            link_type: super::link_type(socket.hardware()?),
            socket,
            room: vec![0; MAX_FRAME],
        })
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Source for Sockets {
    fn frames(&mut self, mut take: impl FnMut(&Frame<'_>)) -> io::Result<bool> {
        match self.socket.receive(&mut self.room) {
            Ok((seen, bytes)) => {
                take(&Frame {
                    timestamp_ns: seen.time_ns,
                    original_length: seen.length,
                    link_type: self.link_type,
                    bytes,
                });
                Ok(true)
            }
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn statistics(&mut self) -> io::Result<Statistics> {
        self.socket.statistics()
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
