//! Messages through TLS on a socket that never waits: who polls it decides for how long.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use rustls::Connection;

use super::Error;
use super::message::{Inbox, Message};

/// How often the socket is read in a step: what is there beyond waits in the kernel.
const READS: usize = 32;

#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    tls: Connection,
    inbox: Inbox,
    /// What was said and is not encrypted yet; what comes before `used` is.
    out: Vec<u8>,
    used: usize,
    /// The other end has said its last.
    closed: bool,
    /// When something was read, and when something was written or there was nothing to write.
    heard: Instant,
    moved: Instant,
}

impl Channel {
    /// For messages of at most this many bytes from the other end.
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

    /// How many bytes were said and wait for the other end to read.
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.used
    }

    /// The next message that has arrived.
    ///
    /// # Errors
    /// [`Error::Malformed`]; [`Error::Closed`] behind the last one.
    pub(super) fn hear(&mut self) -> Result<Option<Message>, Error> {
        match self.inbox.take()? {
            None if self.closed => Err(Error::Closed),
            heard => Ok(heard),
        }
    }

    /// Reads and writes what can be without waiting; whether something was read.
    pub(super) fn step(&mut self) -> Result<bool, Error> {
        let read = self.read();
        // An alert tells the other end why, if it can still be told.
        let written = self.write();
        let read = read?;
        written?;
        Ok(read)
    }

    /// What to poll the socket for.
    pub(super) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::POLLIN;
        flags.set(
            PollFlags::POLLOUT,
            self.tls.wants_write() || self.waiting() > 0,
        );
        flags
    }

    /// # Errors
    /// [`Error::Silent`] or [`Error::Stalled`] if the other end has said, or read, nothing for so long.
    pub(super) fn alive(&self, silence: Duration) -> Result<(), Error> {
        if self.interest().contains(PollFlags::POLLOUT) && self.moved.elapsed() > silence {
            return Err(Error::Stalled(silence));
        }
        if self.heard.elapsed() > silence {
            return Err(Error::Silent(silence));
        }
        Ok(())
    }

    /// The last word.
    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
        // Who does not read it sees the end of the connection.
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
