//! IPFIX over TCP (RFC 7011, section 10.4). Messages that were unacknowledged when a connection ended are sent again
//! over the next one.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use nix::sys::socket::{MsgFlags, recv};

use super::message::{Composer, Message};
use crate::sink::dial::dial;
use crate::sink::{Error, Mode, Sink};

/// The maximum message length in bytes: long enough to amortize the header, short enough to be sent again.
const MAX_MESSAGE: usize = 16_384;
/// The interval between attempts to connect.
const RETRY: Duration = Duration::from_millis(250);
/// The maximum number of messages that wait for an unreachable collector. A live run loses further rows.
const MAX_QUEUED_MESSAGES: usize = 256;

/// Sends rows to a collector over TCP.
#[derive(Debug)]
pub struct TcpExporter {
    collector: String,
    composer: Composer,
    mode: Mode,
    link: Option<Link>,
    tried: Instant,
    /// Messages sent but unacknowledged, followed by messages not sent yet.
    waiting: VecDeque<Waiting>,
    lost: u64,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    /// The position of its end in the byte stream of the connection that carried it.
    end: Option<u64>,
}

/// A connection. To the collector, each one is a separate transport session.
#[derive(Debug)]
struct Link {
    stream: TcpStream,
    sequence: u32,
    written: u64,
    /// The number of templates sent.
    templates: usize,
}

impl TcpExporter {
    /// Connects to a collector at `HOST:PORT`, which must be reachable.
    pub fn connect(
        collector: &str,
        schema: &Schema,
        domain: u32,
        mode: Mode,
    ) -> Result<Self, Error> {
        let composer = Composer::new(schema, MAX_MESSAGE, domain)?;
        let link = Link::connect(collector).map_err(Error::address(collector))?;
        Ok(Self {
            collector: collector.to_owned(),
            composer,
            mode,
            link: Some(link),
            tried: Instant::now(),
            waiting: VecDeque::new(),
            lost: 0,
        })
    }

    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Sends the waiting messages if there is a connection. Reconnects when an attempt is due.
    fn send(&mut self) -> io::Result<()> {
        self.settle();
        if self.link.as_ref().is_some_and(Link::has_ended) {
            self.drop_link();
        }
        if self.link.is_none() {
            if self.tried.elapsed() < RETRY {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.tried = Instant::now();
            self.link = Some(Link::connect(&self.collector)?);
            tracing::info!("{}: connected again", self.collector);
        }
        self.send_over_link().inspect_err(|error| {
            tracing::warn!("{}: {error}", self.collector);
            self.drop_link();
        })
    }

    fn send_over_link(&mut self) -> io::Result<()> {
        let Some(link) = &mut self.link else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        for mut template in self.composer.templates_from(link.templates) {
            link.send(&mut template)?;
        }
        link.templates = self.composer.known();
        for waiting in self.waiting.iter_mut().filter(|one| one.end.is_none()) {
            // The end of the complete message, even if only a part of it is written.
            let end = link.written + waiting.message.len() as u64;
            waiting.end = Some(end);
            link.send(&mut waiting.message)?;
        }
        Ok(())
    }

    /// Removes the messages that the collector's kernel has acknowledged.
    fn settle(&mut self) {
        let Some(link) = &self.link else { return };
        let acknowledged = link.acknowledged();
        let done = |one: &Waiting| one.end.is_some_and(|end| end <= acknowledged);
        while self.waiting.front().is_some_and(done) {
            self.waiting.pop_front();
        }
    }

    /// Drops the connection. Messages that it did not deliver will be sent again.
    fn drop_link(&mut self) {
        self.settle();
        self.link = None;
        self.waiting.iter_mut().for_each(|one| one.end = None);
    }

    /// Retries until everything is sent and `also` holds, or until the timeout.
    fn insist(&mut self, also: impl Fn(&Self) -> bool) -> io::Result<()> {
        let since = Instant::now();
        loop {
            let sent = self.send();
            self.settle();
            if sent.is_ok() && also(self) {
                return Ok(());
            }
            if since.elapsed() > self.mode.delivery_timeout() {
                let late = || Err(io::ErrorKind::TimedOut.into());
                return sent.and_then(|()| late());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn give_up(&mut self, error: io::Error) -> Error {
        for one in self.waiting.drain(..) {
            self.lost += u64::from(one.message.records);
        }
        Error::address(&self.collector)(error)
    }
}

impl Sink for TcpExporter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if self.mode == Mode::Live && self.waiting.len() > MAX_QUEUED_MESSAGES {
            // The newest rows are lost, because the waiting messages are sent in order.
            let _ = self.send();
            if self.waiting.len() > MAX_QUEUED_MESSAGES {
                self.lost += batch.num_rows() as u64;
                return Ok(());
            }
        }
        let messages = self.composer.compose(batch).into_iter();
        let data = messages.filter(|message| message.records > 0);
        self.waiting
            .extend(data.map(|message| Waiting { message, end: None }));
        match self.mode {
            Mode::Live => {
                let _ = self.send();
                Ok(())
            }
            Mode::Whole => self.insist(|_| true).map_err(|error| self.give_up(error)),
        }
    }

    fn idle(&mut self) {
        let _ = self.send();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.insist(|this| this.waiting.is_empty())
            .map_err(|error| self.give_up(error))
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

impl Link {
    fn connect(collector: &str) -> io::Result<Self> {
        Ok(Self {
            stream: dial(collector)?,
            sequence: 0,
            written: 0,
            templates: 0,
        })
    }

    fn send(&mut self, message: &mut Message) -> io::Result<()> {
        let bytes = message.stamped(self.sequence);
        // Counted before the write: the kernel reports what is unacknowledged even after a partial write.
        let mut left = bytes;
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.written += written as u64;
                    left = &left[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sequence = self.sequence.wrapping_add(message.records);
        Ok(())
    }

    /// Bytes acknowledged by the collector's kernel. This is also known after the connection has failed.
    fn acknowledged(&self) -> u64 {
        let waiting = sys::socket::unacknowledged(self.stream.as_fd());
        waiting.map_or(0, |waiting| self.written.saturating_sub(waiting))
    }

    /// Whether the collector has closed the connection. Collectors send nothing, so readable data can only be the end.
    fn has_ended(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(self.stream.as_raw_fd(), &mut [0], flags) {
            Ok(bytes) => bytes == 0,
            Err(errno) => errno != nix::errno::Errno::EAGAIN,
        }
    }
}
