//! A connection to the servers of a stream, and what both ends do with it.

use std::time::Duration;

use nats::{Api, Client, Stored};

use super::message::{self, Message};
use super::{Error, Options};

/// A client that knows the stream.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) api: Api,
}

impl Session {
    /// Tries each server that was named, and those that they told of.
    pub(super) fn open(options: &Options, known: &mut Vec<String>) -> Result<Self, Error> {
        let mut connect = options.connect.clone();
        for server in known.iter() {
            if !connect.servers.contains(server) {
                connect.servers.push(server.clone());
            }
        }
        let client = Client::connect(&connect)?;
        known.clear();
        known.extend_from_slice(client.others());
        Ok(Self {
            client,
            api: Api::new(options.domain.as_deref()),
        })
    }

    /// What the stream is; none if there is none.
    pub(super) fn stream(&mut self, options: &Options) -> Result<Option<nats::Stream>, Error> {
        let stream = self.api.stream(&mut self.client, &options.stream)?;
        match stream {
            Some(stream) if !stream.led => {
                let what = format!("stream {}, which has no leader", options.stream);
                Err(nats::Error::Nobody(what).into())
            }
            stream => Ok(stream),
        }
    }

    /// The message with this sequence number or, if there is none, the next one.
    pub(super) fn message(
        &mut self,
        options: &Options,
        sequence: u64,
    ) -> Result<Option<(Stored, Message)>, Error> {
        let stored = self
            .api
            .message(&mut self.client, &options.stream, sequence)?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let message = open(&stored, options)?;
        Ok(Some((stored, message)))
    }

    /// Waits for whatever comes first from the servers or to the descriptor.
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

/// What a stored message says.
pub(super) fn open(stored: &Stored, options: &Options) -> Result<Message, Error> {
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
