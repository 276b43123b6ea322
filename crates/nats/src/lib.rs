//! A blocking client of NATS and JetStream: publishing to a stream with acknowledgements, and reading a stream in
//! order. The caller decides when to reconnect and what to send again: a stream's only writer must know which
//! messages went over which connection, which clients that reconnect by themselves do not tell.

mod address;
mod client;
mod credentials;
mod jetstream;
mod link;
mod tls;
mod wire;

use std::io;

pub use address::{Address, BadAddress, Identity, parse_authority, parse_login, without_secrets};
pub use client::{Client, Options, unique_id};
pub use credentials::Credentials;
pub use jetstream::{Api, Delivery, OrderedConsumer, StoredMessage, Stream, parse_response};
pub use tls::Tls;
pub use wire::Message;

/// Why a request to a server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server could be reached, or the connection ended: try again.
    #[error("{server}: {source}")]
    Connection { server: String, source: io::Error },
    /// The server refuses the client, now and at another attempt.
    #[error("{server} refuses: {reason}")]
    Refused { server: String, reason: Refusal },
    /// No subscriber answers the subject now: JetStream is off, has no leader, or lacks the requested object.
    #[error("{0} has no responders")]
    NoResponders(String),
    #[error("{0}: timed out waiting for the answer")]
    Timeout(String),
    /// JetStream's error codes: <https://github.com/nats-io/nats-server/blob/main/server/errors.json>.
    #[error("{description} (JetStream error {code})")]
    JetStream {
        code: u64,
        status: u64,
        description: String,
    },
    #[error("{0}: the answer is not one of JetStream's")]
    InvalidResponse(String),
}

/// Why a server refuses a client.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The client's options have no TLS.
    #[error("it asks for TLS")]
    TlsRequired,
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::NoResponders(_) | Self::Timeout(_) => true,
            // A fault of the server, not of the request: a stream whose servers are all away gives 500.
            Self::JetStream { status, .. } => *status >= 500,
            Self::Refused { .. } | Self::InvalidResponse(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_servers_trouble_passes() {
        for (code, status, is_transient) in [
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
            assert_eq!(error.is_transient(), is_transient, "{code}");
        }
    }
}
