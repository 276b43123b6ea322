//! Ships a log over TCP from its source to any number of replicas, with TLS 1.3 and a certificate
//! on either side.
//!
//! The protocol, version 2, consists of messages. Each has a length in four bytes, little-endian, a
//! byte with the type, and its fields. The server accepts every client with a certificate of the
//! right authority. The replica sends the id of its log, and the number and time of its last
//! record. The server sends its term and the beginning of the log, and then each record from the
//! next one on in the log's encoding, or the reason why it cannot. The replica acknowledges records
//! that are on its disk, many at once, and the server sends the head of its log. Each end sends a
//! message at least every second. An end that receives nothing for too long closes the connection,
//! and the replica connects again.

mod channel;
mod client;
mod identity;
mod keys;
mod message;
mod replica;
mod server;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use datapath::{Classify, ErrorClass};
use rustls::{AlertDescription, CertificateError};

pub use client::{Client, Peer, Progress, Waits};
pub use identity::Files;
pub use keys::{KeyFiles, KeysError, make};
pub use message::{
    Fork, Inbox, InvalidMessage, MAX_REQUEST, MAX_RESPONSE, Message, Reason, Tip, VERSION,
};
pub use server::{Counts, Limits, Replica, Server, Status};

use crate::log;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {what}")]
    File { path: PathBuf, what: String },
    #[error("{what}: {source}")]
    Listen { what: String, source: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Tls(#[source] rustls::Error),
    #[error(
        "the server refuses this replica's certificate: {0}; use one of the authority that \
         `serve --clients-ca` names"
    )]
    NotAdmitted(&'static str),
    #[error(
        "the server's certificate is not to be trusted: {0}; `--server-ca` names its authority, and \
         the address a name that it is for"
    )]
    NotTrusted(String),
    #[error(
        "this copy has epochs {} to {epoch}, which the source does not have: another tree was promoted to term {} at \
         epoch {}; `--rollback` discards them, `--fresh` replaces the copy",
        .fork.epoch + 1, .fork.term, .fork.epoch
    )]
    Ahead { epoch: u64, fork: Fork },
    #[error(
        "the server's log is of term {term}, and this copy of term {held}: its source was replaced by a promotion; receive \
         from the promoted source"
    )]
    Term { term: u64, held: u64 },
    #[error("{}: {}", .reason.text(), .text)]
    Refused { reason: Reason, text: String },
    #[error(
        "the other end speaks version {0} of the protocol, this one {VERSION}: use the same lowroad"
    )]
    Version(u16),
    #[error("the other end sent {0}")]
    Malformed(#[from] InvalidMessage),
    #[error("the other end closed the connection")]
    Closed,
    #[error("the other end has said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the other end has read nothing for {} s", .0.as_secs())]
    Stalled(Duration),
    #[error(transparent)]
    Log(#[from] log::Error),
}

impl Error {
    /// Whether the error may pass without intervention: a broken connection, a server that
    /// restarts, a full disk that gets space.
    pub fn heals(&self) -> bool {
        match self {
            Self::Io(_) | Self::Tls(_) | Self::Closed | Self::Silent(_) | Self::Stalled(_) => true,
            Self::Refused { reason, .. } => matches!(reason, Reason::Full | Reason::Source),
            Self::Log(_) => self.is_full(),
            _ => false,
        }
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_full())
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::File { .. }
            | Self::NotAdmitted(_)
            | Self::NotTrusted(_)
            | Self::Refused { .. }
            | Self::Ahead { .. }
            | Self::Term { .. }
            | Self::Version(_) => ErrorClass::Input,
            Self::Listen { .. }
            | Self::Io(_)
            | Self::Tls(_)
            | Self::Malformed(_)
            | Self::Closed
            | Self::Silent(_)
            | Self::Stalled(_)
            | Self::Log(_) => ErrorClass::Failed,
        }
    }
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        use AlertDescription as Alert;
        match error {
            rustls::Error::InvalidCertificate(why) => Self::NotTrusted(of_certificate(&why)),
            rustls::Error::NoCertificatesPresented => Self::NotTrusted("there is none".to_owned()),
            rustls::Error::AlertReceived(alert) => Self::NotAdmitted(match alert {
                Alert::CertificateRequired => "it has none",
                Alert::CertificateExpired => "it has expired",
                Alert::CertificateRevoked => "it was revoked",
                Alert::UnknownCA => "it is from another authority",
                Alert::BadCertificate | Alert::UnsupportedCertificate => {
                    "it is not one for clients"
                }
                Alert::CertificateUnknown | Alert::AccessDenied => "it is not accepted",
                Alert::DecryptError => "its key is not the certificate's",
                other => return Self::Tls(rustls::Error::AlertReceived(other)),
            }),
            other => Self::Tls(other),
        }
    }
}

fn of_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is not for that name".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is from another authority".to_owned()
        }
        other => other.to_string(),
    }
}
