//! Receive buffers: one datagram by `recvmsg`, or a batch by `recvmmsg`.

use std::io;
use std::net::UdpSocket;

use sys::mmsg::{self, RecvBatch, RecvInfo};

/// The largest superframe, and then some: with buffers a power of two apart, every datagram of a
/// batch would fall into the same few cache sets.
const BUFFER: usize = 65_536 + 576;

/// Received datagrams or superframes.
#[derive(Debug)]
pub(super) enum Intake {
    One(Box<[u8]>, RecvInfo),
    Batch(RecvBatch),
}

impl Intake {
    pub(super) fn new(batch: usize) -> Self {
        if batch == 1 {
            Self::One(vec![0; BUFFER].into(), RecvInfo::default())
        } else {
            Self::Batch(RecvBatch::new(batch, BUFFER))
        }
    }

    /// Replaces the content; waits for one datagram, as long as the socket's timeout says.
    pub(super) fn wait(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.receive(socket, 0, mmsg::WAIT_FOR_ONE)
    }

    /// Replaces the content with what is there.
    pub(super) fn poll(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.receive(socket, mmsg::DONT_WAIT, mmsg::DONT_WAIT)
    }

    fn receive(&mut self, socket: &UdpSocket, one: i32, batch: i32) -> io::Result<usize> {
        match self {
            Self::One(buffer, received) => {
                *received = mmsg::receive_one(socket, buffer, one)?;
                Ok(1)
            }
            Self::Batch(messages) => messages.receive(socket, batch),
        }
    }

    /// Datagram `index` of the last call, which brought more than that.
    pub(super) fn get(&self, index: usize) -> Option<(&RecvInfo, &[u8])> {
        match self {
            Self::One(buffer, received) => Some((received, &buffer[..received.len])),
            Self::Batch(messages) => messages.iter().nth(index),
        }
    }
}
