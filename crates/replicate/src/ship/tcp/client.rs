//! The replica's end: connects, reconnects, and keeps a copy of the log. Everything that has
//! arrived is made durable together, and only then acknowledged.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollTimeout, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::channel::Channel;
use super::message::{BESIDES, Fork, InvalidMessage, MAX_RESPONSE, Message, Reason, Tip, VERSION};
use super::{Error, Limits};
use crate::record::Record;
use crate::ship::Sink;

/// How many bytes arrive before they are made durable. The kernel buffers the rest.
const BATCH: usize = 8 << 20;
/// The time limit for a connection attempt.
const CONNECT: Duration = Duration::from_secs(3);
/// The shortest and the longest delay between attempts.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The server to copy from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    host: String,
    port: u16,
}

impl Peer {
    /// `HOST:PORT`, where the host is a name, an address, or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if bare.is_none() && host.contains(':') {
            return None;
        }
        ServerName::try_from(host).ok()?;
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok().filter(|port| *port > 0)?,
        })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The state of the copy.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Whether records can arrive now.
    pub connected: bool,
    /// The last record and epoch on the disk.
    pub number: u64,
    pub epoch: u64,
    /// The head of the source's log as it was last reported.
    pub tip: Tip,
    /// Counted since the start: connections made, records written, records that the copy had
    /// already, and bytes of files in records.
    pub connects: u64,
    pub records: u64,
    pub repeated: u64,
    pub bytes: u64,
    /// How many times the copy was replaced.
    pub replaced: u64,
    /// The last error, if the operation is being retried.
    pub trouble: Option<String>,
}

/// The time limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// How often it sends a message, and how long the server may be silent.
    pub beat: Duration,
    pub silence: Duration,
    /// The longest time between two attempts.
    pub again: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            beat: limits.beat,
            silence: limits.silence,
            again: MAX_DELAY,
        }
    }
}

#[derive(Debug)]
pub struct Client {
    peer: Peer,
    tls: Arc<ClientConfig>,
    sink: Sink,
    /// Whether to replace a copy that cannot continue.
    fresh: bool,
    /// Whether a copy that is ahead of a promoted source drops what the source does not have.
    rollback: bool,
    waits: Waits,
    session: Option<Session>,
    /// The earliest time of the next connection attempt.
    again: Instant,
    attempts: u32,
    progress: Progress,
}

#[derive(Debug)]
struct Session {
    channel: Channel,
    begun: Option<Handshake>,
    beat: Instant,
    /// Bytes of records that are not durable yet.
    unsynced: usize,
}

/// The state of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Welcome,
    Records,
}

impl Client {
    /// Keeps a copy in this folder, which is created if there is none. With `fresh`, a copy that
    /// cannot continue is replaced.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub fn open(
        to: &Path,
        peer: Peer,
        tls: Arc<ClientConfig>,
        fresh: bool,
        waits: Waits,
    ) -> Result<Self, Error> {
        Ok(Self::of(Sink::open(to)?, peer, tls, fresh, waits))
    }

    /// As [`Self::open`], for a copy that is already open.
    pub fn of(sink: Sink, peer: Peer, tls: Arc<ClientConfig>, fresh: bool, waits: Waits) -> Self {
        let mut client = Self {
            peer,
            tls,
            sink,
            fresh,
            rollback: false,
            waits,
            session: None,
            again: Instant::now(),
            attempts: 0,
            progress: Progress::default(),
        };
        client.reached();
        client
    }

    /// Allows the copy to drop epochs that a promoted source does not have.
    #[must_use]
    pub fn with_rollback(self, rollback: bool) -> Self {
        Self { rollback, ..self }
    }

    /// Does the pending work, and waits at most this long for more. Disk writes and a connection
    /// attempt may take longer. Temporary errors are reported in the progress.
    ///
    /// # Errors
    /// Errors that do not pass by themselves.
    pub fn poll(&mut self, at_most: Duration) -> Result<&Progress, Error> {
        let done = match self.session.take() {
            Some(mut session) => {
                let done = self.step(&mut session, at_most);
                if done.is_ok() {
                    self.session = Some(session);
                }
                done
            }
            None => self.connect(at_most),
        };
        let healed = match done {
            Err(error) if self.fresh && is_of_the_copy(&error) => {
                tracing::warn!("{error}: beginning afresh");
                self.sink.clear()?;
                self.progress.replaced += 1;
                // The source reports its head again after a reconnect.
                self.progress.tip = Tip::default();
                self.reached();
                Ok(())
            }
            done => done,
        };
        self.progress.connected = self.is_connected();
        if let Err(error) = healed {
            if !error.heals() {
                return Err(error);
            }
            self.progress.trouble = Some(error.to_string());
            self.wait();
        }
        Ok(&self.progress)
    }

    /// Makes everything that has arrived durable, before the end.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub fn finish(mut self) -> Result<Progress, Error> {
        self.sink.sync()?;
        self.reached();
        if let Some(mut session) = self.session.take() {
            session.channel.say(&self.received());
            session.channel.close();
        }
        self.progress.connected = false;
        Ok(self.progress)
    }

    fn is_connected(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.begun == Some(Handshake::Records))
    }

    /// Updates the progress with what is on the disk.
    fn reached(&mut self) {
        let held = self.sink.held();
        self.progress.number = held.map_or(0, |held| held.number);
        self.progress.epoch = held.map_or(0, |held| held.epoch);
    }

    fn received(&self) -> Message {
        Message::Received {
            number: self.progress.number,
            epoch: self.progress.epoch,
        }
    }

    /// Doubles the delay and subtracts up to half of it at random, so that replicas do not all
    /// connect at once.
    fn wait(&mut self) {
        let longest = MIN_DELAY * 2_u32.saturating_pow(self.attempts.min(16));
        let longest = longest.min(self.waits.again);
        self.attempts += 1;
        self.again = Instant::now() + longest.mul_f64(0.5 + fastrand::f64() / 2.0);
    }

    fn connect(&mut self, at_most: Duration) -> Result<(), Error> {
        let left = self.again.saturating_duration_since(Instant::now());
        if left > at_most {
            thread::sleep(at_most);
            return Ok(());
        }
        thread::sleep(left);
        // Records that did not fit on the disk wait in memory. The server sends no more until the
        // disk has space.
        self.sink.sync()?;
        self.reached();
        let unnamed = |_| Error::NotTrusted(format!("{} is no name", self.peer.host));
        let name = ServerName::try_from(self.peer.host.clone()).map_err(unnamed)?;
        let stream = self.peer.connect()?;
        let tls = ClientConnection::new(Arc::clone(&self.tls), name)?;
        self.session = Some(Session {
            channel: Channel::new(stream, tls.into(), MAX_RESPONSE)?,
            begun: None,
            beat: Instant::now(),
            unsynced: 0,
        });
        Ok(())
    }

    fn step(&mut self, session: &mut Session, at_most: Duration) -> Result<(), Error> {
        let stepped = self.take(session, at_most);
        if session.unsynced > 0 {
            self.sink.sync()?;
            session.unsynced = 0;
            self.reached();
            session.channel.say(&self.received());
            session.beat = Instant::now();
        }
        stepped?;
        session.channel.alive(self.waits.silence)?;
        if session.begun == Some(Handshake::Records) && session.beat.elapsed() >= self.waits.beat {
            session.beat = Instant::now();
            session.channel.say(&self.received());
        }
        session.channel.step()?;
        Ok(())
    }

    /// Takes as many of the arrived records as are made durable together.
    fn take(&mut self, session: &mut Session, at_most: Duration) -> Result<(), Error> {
        let at_most = at_most.min(self.waits.beat);
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let channel = &mut session.channel;
        channel.step()?;
        if !self.hear(session)? {
            let channel = &session.channel;
            let mut asked = [PollFd::new(channel.as_fd(), channel.interest())];
            match poll(&mut asked, timeout) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        while session.channel.step()? && session.unsynced < BATCH {
            self.hear(session)?;
        }
        self.hear(session).map(drop)
    }

    /// Processes a message. Returns whether there was one.
    fn hear(&mut self, session: &mut Session) -> Result<bool, Error> {
        let mut any = false;
        while let Some(message) = session.channel.hear()? {
            any = true;
            self.follow(session, message)?;
        }
        Ok(any)
    }

    fn follow(&mut self, session: &mut Session, message: Message) -> Result<(), Error> {
        match (message, session.begun) {
            (Message::Welcome { version }, None) if version == VERSION => {
                session.begun = Some(Handshake::Welcome);
                session.channel.say(&Message::Hello {
                    version: VERSION,
                    held: self.sink.held(),
                });
            }
            (Message::Welcome { version }, None) => return Err(Error::Version(version)),
            (Message::Term(term), Some(Handshake::Welcome)) => self.check_term(term)?,
            (Message::Rewind(fork), Some(Handshake::Welcome)) => {
                self.rewind(fork)?;
                session.channel.say(&Message::Hello {
                    version: VERSION,
                    held: self.sink.held(),
                });
            }
            (Message::Begin(beginning), Some(Handshake::Welcome)) => {
                self.sink.begin(&beginning)?;
                session.begun = Some(Handshake::Records);
                self.attempts = 0;
                self.progress.connects += 1;
                self.progress.trouble = None;
            }
            (Message::Record(record), Some(Handshake::Records)) => self.write(session, &record)?,
            (Message::Tip(tip), Some(_)) => self.progress.tip = tip,
            (Message::Refused { reason, text }, _) => return Err(Error::Refused { reason, text }),
            _ => return Err(InvalidMessage::NotDue.into()),
        }
        Ok(())
    }

    /// Refuses a source of an earlier term, which continues an abandoned history.
    fn check_term(&self, term: u64) -> Result<(), Error> {
        let held = self.sink.held().map_or(0, |held| held.term);
        match term < held {
            true => Err(Error::Term { term, held }),
            false => Ok(()),
        }
    }

    /// Drops what a promoted source does not have: records that are in no epoch, or all of them if
    /// that is allowed.
    fn rewind(&mut self, fork: Fork) -> Result<(), Error> {
        let held = self.sink.held().ok_or(InvalidMessage::NotDue)?;
        self.check_term(fork.term)?;
        let Fork { epoch, number, .. } = fork;
        if number >= held.number || self.sink.written_at(number)? != Some(fork.at_ns) {
            let (reason, text) = (Reason::Diverged, format!("record {number} is another"));
            return Err(Error::Refused { reason, text });
        }
        if held.epoch > epoch {
            if !self.rollback {
                let epoch = held.epoch;
                return Err(Error::Ahead { epoch, fork });
            }
            let (first, last, term) = (epoch + 1, held.epoch, fork.term);
            tracing::warn!(
                "epochs {first} to {last} are discarded: term {term} goes on from epoch {epoch}"
            );
        }
        self.sink.rewind(number)?;
        self.reached();
        Ok(())
    }

    fn write(&mut self, session: &mut Session, record: &Record) -> Result<(), Error> {
        let bytes = record.bytes();
        // A record that does not fit on the disk also has to be made durable.
        session.unsynced += bytes + BESIDES;
        if self.sink.receive(record)? {
            self.progress.records += 1;
            self.progress.bytes += bytes as u64;
        } else {
            self.progress.repeated += 1;
        }
        Ok(())
    }
}

/// Whether another copy would be accepted.
fn is_of_the_copy(error: &Error) -> bool {
    use Reason::{Compacted, Diverged, OtherLog};
    matches!(
        error,
        Error::Ahead { .. }
            | Error::Refused {
                reason: Compacted | OtherLog | Diverged,
                ..
            }
    )
}
