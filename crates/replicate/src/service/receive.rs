//! Receives a copy of a log that another machine ships, over TCP or from NATS servers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::publish::{Broker, Tls};
use super::upstream::Noter;
use super::{Error, keep};
use crate::log;
use crate::record::Term;
use crate::ship::nats::{self, Received as FromNats, Receiver};
use crate::ship::tcp::{Client, Files, Peer, Progress as FromTcp, Waits};
use crate::ship::{Sink, tcp};

#[derive(Clone, Debug)]
pub struct Settings {
    /// `tcp://HOST:PORT` or `nats://HOST:PORT/STREAM`
    pub from: String,
    /// Created if there is none. An existing copy is continued.
    pub log: PathBuf,
    /// Replaces a copy that cannot continue.
    pub fresh: bool,
    /// Lets a copy that is ahead of a promoted source drop what the source does not have.
    pub rollback: bool,
    /// The approximate size limit of the copy, as
    /// [`capture::Settings::keep`](super::capture::Settings::keep).
    pub keep: Option<u64>,
    pub tls: Tls,
    pub broker: Broker,
}

/// Settings that a connection requires, with the names of their flags.
#[derive(Debug, thiserror::Error)]
#[error("{from} needs --cert, --key and --server-ca")]
pub struct Needs {
    pub from: String,
}

/// The transport.
enum Way<'a> {
    Tcp(&'a str),
    Nats,
}

impl Settings {
    /// Checks that the address is valid and all files can be read.
    ///
    /// # Errors
    /// [`Error::Input`], [`Error::Needs`], [`Error::Tcp`]
    pub fn check(&self) -> Result<(), Error> {
        keep::check(self.keep)?;
        log::check_new(&self.log)?;
        match self.way()? {
            Way::Tcp(peer) => self.of_tcp(peer).map(drop),
            Way::Nats if self.rollback => {
                Err(self.refused("is a stream: --rollback is for tcp://HOST:PORT"))
            }
            Way::Nats => self.broker.options(&self.from, &self.tls).map(drop),
        }
    }

    /// # Errors
    /// As [`Self::check`], and [`Error::Log`].
    pub fn start(&self) -> Result<Receiving, Error> {
        match self.way()? {
            Way::Tcp(peer) => {
                let (peer, files) = self.of_tcp(peer)?;
                let tls = files.client()?;
                let client = Client::of(self.sink()?, peer, tls, self.fresh, Waits::default());
                let client = client.with_rollback(self.rollback);
                Ok(self.receiving(Stream::Tcp(Box::new(client), Backlog::default())))
            }
            Way::Nats => {
                let options = self.broker.options(&self.from, &self.tls)?;
                let receiver = Receiver::new(self.sink()?, options);
                let replacing = Replacing {
                    fresh: self.fresh,
                    again: false,
                };
                Ok(self.receiving(Stream::Nats(Box::new(receiver), replacing)))
            }
        }
    }

    fn receiving(&self, stream: Stream) -> Receiving {
        Receiving {
            stream,
            log: self.log.clone(),
            from: without_password(&self.from),
            noter: Noter::default(),
        }
    }

    fn sink(&self) -> Result<Sink, Error> {
        Ok(Sink::with_segments(&self.log, keep::segment(self.keep))?)
    }

    fn way(&self) -> Result<Way<'_>, Error> {
        match self.from.split_once("://") {
            Some(("tcp", peer)) => Ok(Way::Tcp(peer)),
            Some(("nats" | "tls", _)) => Ok(Way::Nats),
            _ => Err(self.refused("is neither tcp://HOST:PORT nor nats://HOST:PORT/STREAM")),
        }
    }

    fn of_tcp(&self, peer: &str) -> Result<(Peer, Files), Error> {
        let peer = Peer::parse(peer).ok_or_else(|| self.refused("is no tcp://HOST:PORT"))?;
        let Tls {
            cert: Some(cert),
            key: Some(key),
            server_ca: Some(authority),
        } = self.tls.clone()
        else {
            let from = self.from.clone();
            return Err(Needs { from }.into());
        };
        let files = Files {
            certificate: cert,
            key,
            authority,
        };
        files.client()?;
        Ok((peer, files))
    }

    fn refused(&self, what: &str) -> Error {
        Error::Input(format!("{} {what}", self.from))
    }
}

/// The address without user name and password.
fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

/// A copy that is being written.
#[derive(Debug)]
pub struct Receiving {
    stream: Stream,
    log: PathBuf,
    from: String,
    noter: Noter,
}

#[derive(Debug)]
enum Stream {
    Tcp(Box<Client>, Backlog),
    Nats(Box<Receiver>, Replacing),
}

/// Whether to replace a copy that cannot continue with its stream.
#[derive(Clone, Copy, Debug)]
pub struct Replacing {
    fresh: bool,
    /// The copy was replaced, and has not caught up with the stream since. A stream that no copy
    /// can have is then an error, instead of being tried forever.
    again: bool,
}

/// The progress of a copy.
#[derive(Clone, Debug)]
pub enum ReceiveProgress {
    /// Also how long it has been behind.
    Tcp(FromTcp, Duration),
    Nats(FromNats),
}

/// The head of the source when it was seen to be ahead of the copy, and the time of that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    number: u64,
    since: Option<Instant>,
}

impl Backlog {
    fn follow(&mut self, progress: &FromTcp) -> Duration {
        // Another log of the source may end earlier.
        if progress.number >= self.number.min(progress.tip.number) {
            self.since = None;
        }
        if self.since.is_none() && progress.tip.number > progress.number {
            self.number = progress.tip.number;
            self.since = Some(Instant::now());
        }
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Replacing {
    fn may(self, term: u64, error: &nats::Error) -> bool {
        // The other history may be that of a source that a promotion has replaced.
        let promoted = term > Term::FIRST && matches!(error, nats::Error::Diverged { .. });
        self.fresh && !self.again && !promoted && error.needs_another_copy()
    }

    fn follow(&mut self, progress: &FromNats) {
        let whole = progress.number > 0 && progress.pending == 0 && progress.waiting.is_none();
        self.again &= !whole;
    }
}

impl Receiving {
    /// Receives the available records, or waits at most this long for some.
    ///
    /// # Errors
    /// [`Error::Tcp`] or [`Error::Nats`] for errors that do not pass by themselves.
    pub fn step(&mut self, wait: Duration) -> Result<ReceiveProgress, Error> {
        let received = self.stream.step(wait)?;
        self.noter.note(&self.log, &self.from, &received);
        Ok(received)
    }

    /// Makes everything that has arrived durable.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn finish(mut self) -> Result<ReceiveProgress, Error> {
        let received = self.stream.finish()?;
        self.noter.write(&self.log, &self.from, &received);
        Ok(received)
    }
}

impl Stream {
    fn step(&mut self, wait: Duration) -> Result<ReceiveProgress, Error> {
        match self {
            Self::Tcp(client, behind) => {
                let progress = client.poll(wait)?.clone();
                let lag = behind.follow(&progress);
                Ok(ReceiveProgress::Tcp(progress, lag))
            }
            Self::Nats(receiver, replacing) => loop {
                match receiver.step(wait) {
                    Err(error) if replacing.may(receiver.term(), &error) => {
                        tracing::warn!("{error}: beginning afresh");
                        replacing.again = true;
                        receiver.clear()?;
                    }
                    progress => {
                        let progress = progress?;
                        replacing.follow(&progress);
                        return Ok(ReceiveProgress::Nats(progress));
                    }
                }
            },
        }
    }

    fn finish(self) -> Result<ReceiveProgress, Error> {
        match self {
            Self::Tcp(client, mut behind) => {
                let progress = client.finish()?;
                let lag = behind.follow(&progress);
                Ok(ReceiveProgress::Tcp(progress, lag))
            }
            Self::Nats(receiver, _) => Ok(ReceiveProgress::Nats(receiver.finish()?)),
        }
    }
}

impl ReceiveProgress {
    /// Whether records can arrive now.
    pub fn connected(&self) -> bool {
        match self {
            Self::Tcp(progress, _) => progress.connected,
            Self::Nats(progress) => progress.waiting.is_none() && progress.server.is_some(),
        }
    }

    /// The reason for waiting, or the error that is being retried.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Tcp(progress, _) => progress.trouble.as_deref(),
            Self::Nats(progress) => progress.waiting.as_deref(),
        }
    }

    /// The last record and epoch of the copy.
    pub fn reached(&self) -> (u64, u64) {
        match self {
            Self::Tcp(progress, _) => (progress.number, progress.epoch),
            Self::Nats(progress) => (progress.number, progress.epoch),
        }
    }

    /// The number of records that the source is known to have and the copy has not, and for how
    /// long, in milliseconds. A stream reports only messages, not records.
    pub(super) fn lag(&self) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Tcp(progress, lag) => {
                let ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
                (Some(behind(progress)), Some(ms))
            }
            Self::Nats(_) => (None, None),
        }
    }
}

/// By how many records a copy is behind its source.
pub fn behind(progress: &tcp::Progress) -> u64 {
    progress.tip.number.saturating_sub(progress.number)
}
