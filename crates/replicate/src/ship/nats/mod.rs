//! Ships a log over NATS JetStream. One publisher keeps a stream equal to its log, and any number
//! of receivers each keep a copy of the log. The stream is only a transport: what it loses is
//! published again from the log, and a receiver reports an error if the stream does not continue
//! its copy.

mod foreign_messages;
mod message;
mod packets;
mod publish;
mod receive;
mod session;
mod stream;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use datapath::{Classify, ErrorClass};
use nats::{Address, Credentials, Identity, Tls};

pub use foreign_messages::ForeignMessages;
pub use publish::{Progress as Published, Publisher};
pub use receive::{Progress as Received, Receiver};
pub use stream::Settings;

use super::Key;
use crate::log;

/// The address of the stream, and the credentials and keys.
#[derive(Clone, Debug)]
pub struct Options {
    pub connect: nats::Options,
    pub stream: String,
    /// The JetStream domain of the stream, if it differs from that of the servers.
    pub domain: Option<String>,
    /// The key that signs messages.
    pub key: Option<Key>,
    /// Publish only records that are on the log's disk.
    pub synced: bool,
}

impl Options {
    /// # Errors
    /// Fails unless the address is `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST…]/STREAM`, or
    /// the same with `tls://`. For the latter it reads the trusted authorities of this machine.
    pub fn new(address: &str) -> io::Result<Self> {
        let invalid = |error: nats::BadAddress| io::Error::new(io::ErrorKind::InvalidInput, error);
        let address: Address = address.parse().map_err(invalid)?;
        Ok(Self {
            connect: nats::Options {
                servers: address.servers,
                identity: address.identity,
                tls: address.tls.then(|| Tls::read(None, None)).transpose()?,
                name: "lowroad replicate".to_owned(),
                inbox: format!("_INBOX.lowroad.{}", address.name),
            },
            stream: address.name,
            domain: None,
            key: None,
            synced: false,
        })
    }

    /// Encrypts connections, and trusts only certificates of these authorities.
    ///
    /// # Errors
    /// Names the file and the problem.
    pub fn tls(
        &mut self,
        authorities: Option<&Path>,
        own: Option<(&Path, &Path)>,
    ) -> io::Result<()> {
        self.connect.tls = Some(Tls::read(authorities, own)?);
        Ok(())
    }

    /// Authenticates with the contents of a `.creds` file.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn credentials(&mut self, path: &Path) -> io::Result<()> {
        self.connect.identity = Identity::Key(Credentials::read(path)?);
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error("waiting: {0}")]
    Wait(#[source] io::Error),
    #[error("stream {stream}: {who} publishes to it already; stop that one first")]
    Taken { stream: String, who: String },
    #[error("stream {stream}: another publisher has taken it over; this one stops")]
    Fenced { stream: String },
    #[error("stream {stream}: {what}")]
    Settings { stream: String, what: String },
    #[error("stream {stream} has another log, {found}, not {expected}; use another stream")]
    OtherLog {
        stream: String,
        found: String,
        expected: String,
    },
    #[error(
        "stream {stream}: message {sequence} is no part of a log; nothing else may be published to its subject"
    )]
    Foreign { stream: String, sequence: u64 },
    #[error("stream {0}: a message to the consumer's own subject is not from the stream")]
    Stray(String),
    #[error("stream {stream}: message {sequence} {what}; nothing of it was taken")]
    Unsigned {
        stream: String,
        sequence: u64,
        what: &'static str,
    },
    /// The most likely cause is a power failure at the source.
    #[error(
        "stream {stream} has another record {number} than the log; purge it, and have receivers begin afresh"
    )]
    Diverged { stream: String, number: u64 },
    #[error(
        "stream {stream} does not have record {number} any more, and the copy needs it; have it begin afresh"
    )]
    Purged { stream: String, number: u64 },
    #[error("stream {stream}: record {number} is missing in it")]
    Missing { stream: String, number: u64 },
}

impl Error {
    /// Whether a new copy could continue.
    pub fn needs_another_copy(&self) -> bool {
        matches!(
            self,
            Self::Purged { .. } | Self::OtherLog { .. } | Self::Diverged { .. }
        )
    }

    /// Whether to try again: the servers may come back, or the stream may get a leader.
    fn passes(&self) -> bool {
        matches!(self, Self::Nats(error) if error.is_transient())
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Settings { .. } | Self::OtherLog { .. } => ErrorClass::Input,
            Self::Log(_)
            | Self::Nats(_)
            | Self::Wait(_)
            | Self::Taken { .. }
            | Self::Fenced { .. }
            | Self::Foreign { .. }
            | Self::Stray(_)
            | Self::Unsigned { .. }
            | Self::Diverged { .. }
            | Self::Purged { .. }
            | Self::Missing { .. } => ErrorClass::Failed,
        }
    }
}

/// The delay between attempts, which grows up to a limit.
#[derive(Debug)]
struct Backoff {
    delay: Duration,
    until: Instant,
}

impl Backoff {
    const MIN_DELAY: Duration = Duration::from_millis(50);
    const MAX_DELAY: Duration = Duration::from_secs(3);

    fn new() -> Self {
        Self {
            delay: Self::MIN_DELAY,
            until: Instant::now(),
        }
    }

    fn failed(&mut self) {
        // Random jitter, because many receivers lose a server at the same time.
        let delay = self.delay.mul_f64(fastrand::f64().mul_add(0.5, 0.75));
        self.until = Instant::now() + delay;
        self.delay = (self.delay * 2).min(Self::MAX_DELAY);
    }

    fn succeeded(&mut self) {
        self.delay = Self::MIN_DELAY;
    }

    /// The remaining time to wait.
    fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

fn hexadecimal(id: &log::Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
