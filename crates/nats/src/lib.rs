//! A client of NATS and JetStream that blocks: as much as publishing to a stream with acknowledgements
//! and reading one in its order need. Who uses it decides when to connect again, and what to send then:
//! a stream's only writer has to know what went over which connection, which clients that connect and
//! send again by themselves do not say.

mod address;
mod client;
mod credentials;
mod jetstream;
mod link;
mod tls;
mod wire;

use std::io;

pub use address::{Address, BadAddress, Identity};
pub use client::{Client, Options};
pub use credentials::Credentials;
pub use jetstream::{Api, Delivery, Stored, Stream, Subscription, acknowledgement};
pub use tls::Tls;
pub use wire::Message;

/// Why a server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server of those named was there, or the connection ended: try again.
    #[error("{server}: {source}")]
    Connection { server: String, source: io::Error },
    /// Said by the server, and the same on another attempt.
    #[error("{server} refuses: {what}")]
    Refused { server: String, what: String },
    /// Nobody takes the subject now: JetStream is off, has no leader, or knows no such thing.
    #[error("nobody answers to {0}")]
    Nobody(String),
    #[error("no answer to {0} in time")]
    Late(String),
    /// JetStream's own codes: <https://github.com/nats-io/nats-server/blob/main/server/errors.json>.
    #[error("{description} (JetStream error {code})")]
    JetStream {
        code: u64,
        status: u64,
        description: String,
    },
    #[error("the answer to {0} is none that JetStream gives")]
    Unintelligible(String),
}

impl Error {
    /// Whether the same question may be answered later.
    pub fn passes(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Nobody(_) | Self::Late(_) => true,
            // The server's trouble, and not the question's: a stream whose servers are all away is 500.
            Self::JetStream { status, .. } => *status >= 500,
            Self::Refused { .. } | Self::Unintelligible(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_servers_trouble_passes() {
        for (code, status, passes) in [
            // Not available, offline, not found, another sequence number.
            (10008, 503, true),
            (10118, 500, true),
            (10059, 404, false),
            (10071, 400, false),
        ] {
            let error = Error::JetStream {
                code,
                status,
                description: String::new(),
            };
            assert_eq!(error.passes(), passes, "{code}");
        }
    }
}
