//! A connection to the servers of a stream, and the operations that both ends need.

use std::ops::Range;
use std::time::Duration;

use nats::{Api, Client, StoredMessage};

use super::message::{self, Message, Place};
use super::{Error, Options};
use crate::log::Id;

/// How many consecutive foreign messages are skipped in search of one that is part of a log.
const SEARCH_LIMIT: u64 = 1024;

/// The servers of a stream in addition to the configured ones.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// Servers that others have announced.
    known: Vec<String>,
    /// The last server that did not answer in time.
    silent: Option<String>,
}

impl Servers {
    /// Ends a session that is no longer usable, because its connection is broken or its server does
    /// not answer. A server that hangs, or whose machine is gone, may keep the connection open
    /// forever.
    pub(super) fn leave(&mut self, session: &mut Option<Session>, error: &Error) {
        match error {
            Error::Nats(nats::Error::Connection { .. }) => *session = None,
            Error::Nats(nats::Error::Timeout(_)) => {
                if let Some(session) = session.take() {
                    self.silent = Some(session.client.server().to_owned());
                }
            }
            _ => {}
        }
    }

    /// All servers in the order in which they are tried. The one that did not answer comes last.
    fn in_order(&self, named: &[String]) -> Vec<String> {
        let mut all = named.to_vec();
        for server in &self.known {
            if !all.contains(server) {
                all.push(server.clone());
            }
        }
        let is_silent = |server: &String| Some(server) == self.silent.as_ref();
        if let Some(at) = all.iter().position(is_silent) {
            all.rotate_left(at + 1);
        }
        all
    }
}

/// A client with the name of the stream.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) api: Api,
}

impl Session {
    /// Tries each configured server and each server that they have announced.
    pub(super) fn open(options: &Options, servers: &mut Servers) -> Result<Self, Error> {
        let mut connect = options.connect.clone();
        connect.servers = servers.in_order(&connect.servers);
        let client = Client::connect(&connect)?;
        servers.known = client.cluster_servers().to_vec();
        Ok(Self {
            client,
            api: Api::new(options.domain.as_deref()),
        })
    }

    /// The stream, or `None` if it does not exist.
    pub(super) fn stream(&mut self, options: &Options) -> Result<Option<nats::Stream>, Error> {
        let stream = self.api.stream(&mut self.client, &options.stream)?;
        match stream {
            Some(stream) if !stream.has_leader => {
                let what = format!("stream {}, which has no leader", options.stream);
                Err(nats::Error::NoResponders(what).into())
            }
            stream => Ok(stream),
        }
    }

    /// The message with this sequence number, or the next one.
    pub(super) fn stored(
        &mut self,
        options: &Options,
        sequence: u64,
    ) -> Result<Option<StoredMessage>, Error> {
        let (api, stream) = (&self.api, &options.stream);
        Ok(api.message(&mut self.client, stream, sequence)?)
    }

    /// The first message from this sequence number on that is part of a log. `None` if the next
    /// [`SEARCH_LIMIT`] are not.
    pub(super) fn message(
        &mut self,
        options: &Options,
        sequence: u64,
    ) -> Result<Option<(StoredMessage, Message)>, Error> {
        let mut at = sequence;
        for _ in 0..SEARCH_LIMIT {
            let Some(stored) = self.stored(options, at)? else {
                return Ok(None);
            };
            if let Ok(message) = open(&stored, options) {
                return Ok(Some((stored, message)));
            }
            at = stored.sequence + 1;
        }
        Ok(None)
    }

    /// Whether the first message of the stream that is part of a log belongs to this log.
    pub(super) fn begins_with(
        &mut self,
        options: &Options,
        stream: &nats::Stream,
        log: &Id,
    ) -> Result<bool, Error> {
        let first = self.message(options, stream.first)?;
        Ok(first.is_some_and(|(_, message)| message.beginning.id == *log))
    }

    /// The last of these messages that is part of a log. `None` if the last [`SEARCH_LIMIT`] are
    /// not.
    pub(super) fn last(
        &mut self,
        options: &Options,
        all: &Range<u64>,
    ) -> Result<Option<Message>, Error> {
        let first = all.start.max(all.end.saturating_sub(SEARCH_LIMIT));
        for at in (first..all.end).rev() {
            let stored = self.stored(options, at)?;
            if let Some(Ok(message)) = stored.map(|stored| open(&stored, options)) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// The sequence number of the first of these messages that has something of a record, or the
    /// end of the range if none has. If the record arrived in parts, this is the first part, which
    /// contains its time.
    pub(super) fn search(
        &mut self,
        options: &Options,
        all: &Range<u64>,
        number: u64,
    ) -> Result<u64, Error> {
        let before = Place::behind(number.saturating_sub(1));
        // The message is at `low` or after it, and not after `high`.
        let (mut low, mut high) = (all.start, all.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.message(options, middle)? {
                Some((stored, message)) if message.to <= before => {
                    low = stored.sequence + 1;
                }
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// For a later part of a record, the message with its first part. `None` for any other message.
    pub(super) fn head(
        &mut self,
        options: &Options,
        all: &Range<u64>,
        message: &Message,
    ) -> Result<Option<Message>, Error> {
        if message.from.part == 0 {
            return Ok(None);
        }
        let begun = self.search(options, all, message.from.whole + 1)?;
        let head = self.message(options, begun)?;
        Ok(head.map(|(_, message)| message))
    }

    /// Waits until the servers send something or the descriptor is readable.
    pub(super) fn wait(
        &self,
        other: std::os::fd::BorrowedFd<'_>,
        at_most: Duration,
    ) -> Result<(), Error> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd as _;
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let mut asked = [self.client.as_fd(), other].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut asked, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(Error::Wait(error.into())),
        }
    }
}

/// Decodes a stored message.
pub(super) fn open(stored: &StoredMessage, options: &Options) -> Result<Message, Error> {
    let (stream, sequence) = (options.stream.clone(), stored.sequence);
    message::open(&stored.body, options.key.as_ref()).map_err(|wrong| match wrong {
        message::Wrong::Foreign => Error::Foreign { stream, sequence },
        wrong => Error::Unsigned {
            stream,
            sequence,
            what: wrong.words(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_gives_no_answer_comes_last() {
        let named = ["a:1", "b:1"].map(str::to_owned);
        let mut servers = Servers {
            known: ["b:1", "c:1"].map(str::to_owned).into(),
            silent: None,
        };
        let order = |servers: &Servers| servers.in_order(&named).join(" ");
        assert_eq!(order(&servers), "a:1 b:1 c:1");
        for (silent, then) in [
            ("a:1", "b:1 c:1 a:1"),
            ("b:1", "c:1 a:1 b:1"),
            ("c:1", "a:1 b:1 c:1"),
            ("gone:1", "a:1 b:1 c:1"),
        ] {
            servers.silent = Some(silent.to_owned());
            assert_eq!(order(&servers), then);
        }
    }
}
