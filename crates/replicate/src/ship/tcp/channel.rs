//! Messages over TLS on a non-blocking socket. The caller that polls it decides how long to wait.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use rustls::Connection;

use super::Error;
use super::message::{Inbox, Message};

/// How many times the socket is read in a step. The kernel buffers the rest.
const READS: usize = 32;

#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    tls: Connection,
    inbox: Inbox,
    /// Bytes to send. Those before `used` are encrypted already.
    out: Vec<u8>,
    used: usize,
    /// The other end has closed the connection.
    closed: bool,
    /// When something was last read, and when something was last written or there was nothing to
    /// write.
    heard: Instant,
    moved: Instant,
}

impl Channel {
    /// Creates a channel that accepts messages of at most this many bytes.
    pub(super) fn new(stream: TcpStream, tls: Connection, largest: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            tls,
            inbox: Inbox::new(largest),
            out: Vec::new(),
            used: 0,
            closed: false,
            heard: Instant::now(),
            moved: Instant::now(),
        })
    }

    pub(super) fn tls(&self) -> &Connection {
        &self.tls
    }

    pub(super) fn say(&mut self, message: &Message) {
        if self.used == self.out.len() {
            self.out.clear();
            self.used = 0;
        }
        message.put(&mut self.out);
    }

    /// The number of bytes that wait for the other end to read them.
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.used
    }

    /// The next message that has arrived.
    ///
    /// # Errors
    /// [`Error::Malformed`]; [`Error::Closed`] after the last message.
    pub(super) fn hear(&mut self) -> Result<Option<Message>, Error> {
        match self.inbox.take()? {
            None if self.closed => Err(Error::Closed),
            heard => Ok(heard),
        }
    }

    /// Reads and writes as much as possible without waiting. Returns whether something was read.
    pub(super) fn step(&mut self) -> Result<bool, Error> {
        let read = self.read();
        // An alert tells the other end the reason, if it can still be sent.
        let written = self.write();
        let read = read?;
        written?;
        Ok(read)
    }

    /// The events to poll the socket for.
    pub(super) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::POLLIN;
        flags.set(
            PollFlags::POLLOUT,
            self.tls.wants_write() || self.waiting() > 0,
        );
        flags
    }

    /// # Errors
    /// [`Error::Silent`] or [`Error::Stalled`] if the other end has sent or read nothing for this
    /// long.
    pub(super) fn alive(&self, silence: Duration) -> Result<(), Error> {
        if self.interest().contains(PollFlags::POLLOUT) && self.moved.elapsed() > silence {
            return Err(Error::Stalled(silence));
        }
        if self.heard.elapsed() > silence {
            return Err(Error::Silent(silence));
        }
        Ok(())
    }

    /// Sends a closing alert.
    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
        // If the other end does not read it, it sees the end of the connection.
        let _ = self.write();
    }

    fn read(&mut self) -> Result<bool, Error> {
        let mut any = false;
        for _ in 0..READS {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Ok(_) => {
                    any = true;
                    self.heard = Instant::now();
                    self.decrypt()?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(any)
    }

    fn decrypt(&mut self) -> Result<(), Error> {
        let state = self.tls.process_new_packets()?;
        let mut room = [0; 16 << 10];
        let mut left = state.plaintext_bytes_to_read();
        while left > 0 {
            let count = self.tls.reader().read(&mut room)?;
            if count == 0 {
                break;
            }
            self.inbox.push(room.get(..count).unwrap_or_default());
            left = left.saturating_sub(count);
        }
        self.closed |= state.peer_has_closed();
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        loop {
            let rest = self.out.get(self.used..).unwrap_or_default();
            if !rest.is_empty() {
                self.used += self.tls.writer().write(rest)?;
            }
            if self.used == self.out.len() {
                self.out.clear();
                self.out.shrink_to(256 << 10);
                self.used = 0;
            }
            if !self.tls.wants_write() {
                self.moved = Instant::now();
                return Ok(());
            }
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => self.moved = Instant::now(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
