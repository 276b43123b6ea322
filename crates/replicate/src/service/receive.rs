//! A copy of a log that another machine ships, over TCP or from NATS servers.

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
    /// Made if there is none; one that is there goes on.
    pub log: PathBuf,
    /// Replaces a copy that cannot go on.
    pub fresh: bool,
    /// Lets a copy that is ahead of a promoted source give up what that does not have.
    pub rollback: bool,
    /// About how large the copy may become, as [`capture::Settings::keep`](super::capture::Settings::keep).
    pub keep: Option<u64>,
    pub tls: Tls,
    pub broker: Broker,
}

/// Settings without which there is no connection, by their names as flags.
#[derive(Debug, thiserror::Error)]
#[error("{from} needs --cert, --key and --server-ca")]
pub struct Needs {
    pub from: String,
}

/// Where it comes from.
enum Way<'a> {
    Tcp(&'a str),
    Nats,
}

impl Settings {
    /// Whether the address is one, and all files can be read.
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

/// An address without what it says of its user.
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

/// Whether a copy is replaced that cannot go on with its stream.
#[derive(Clone, Copy, Debug)]
pub struct Replacing {
    fresh: bool,
    /// It was, and has not had all of the stream since: one that no copy can have is an error, and not begun for ever.
    again: bool,
}

/// How far a copy is.
#[derive(Clone, Debug)]
pub enum ReceiveProgress {
    /// And for how long it has been behind.
    Tcp(FromTcp, Duration),
    Nats(FromNats),
}

/// What the source had when it was seen to have more than the copy, and when that was.
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
    /// Receives what there is, or waits for some at most this long.
    ///
    /// # Errors
    /// [`Error::Tcp`] or [`Error::Nats`], for what does not pass by itself.
    pub fn step(&mut self, wait: Duration) -> Result<ReceiveProgress, Error> {
        let received = self.stream.step(wait)?;
        self.noter.note(&self.log, &self.from, &received);
        Ok(received)
    }

    /// Makes what has arrived durable.
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

    /// What is waited for, or tried again.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Tcp(progress, _) => progress.trouble.as_deref(),
            Self::Nats(progress) => progress.waiting.as_deref(),
        }
    }

    /// The last record and epoch that the copy has.
    pub fn reached(&self) -> (u64, u64) {
        match self {
            Self::Tcp(progress, _) => (progress.number, progress.epoch),
            Self::Nats(progress) => (progress.number, progress.epoch),
        }
    }

    /// Records that the source has said to have and the copy has not; a stream says only messages.
    /// And for how long, in milliseconds.
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
