//! Receive buffers: one datagram by `recvmsg`, or a batch by `recvmmsg`.

use std::io;
use std::net::UdpSocket;

use sys::mmsg::{self, RecvBatch, RecvInfo};

/// A little more than the largest superframe: with buffers a power of two apart, all datagrams of a batch
/// would fall into the same few cache sets.
const BUFFER: usize = 65_536 + 576;

/// Received datagrams or superframes.
#[derive(Debug)]
pub(super) enum ReceiveBuffers {
    One(Box<[u8]>, RecvInfo),
    Batch(RecvBatch),
}

impl ReceiveBuffers {
    pub(super) fn new(batch: usize) -> Self {
        if batch == 1 {
            Self::One(vec![0; BUFFER].into(), RecvInfo::default())
        } else {
            Self::Batch(RecvBatch::new(batch, BUFFER))
        }
    }

    /// Receives into the buffers. Waits for one datagram, up to the socket's timeout.
    pub(super) fn wait(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.receive(socket, 0, mmsg::WAIT_FOR_ONE)
    }

    /// Receives the datagrams that are queued, without waiting.
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

    /// Datagram `index` of the last call; none if it received fewer.
    pub(super) fn get(&self, index: usize) -> Option<(&RecvInfo, &[u8])> {
        match self {
            Self::One(buffer, received) => Some((received, &buffer[..received.len])),
            Self::Batch(messages) => messages.iter().nth(index),
        }
    }
}
