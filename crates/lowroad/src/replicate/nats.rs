//! What `publish` and `receive` ask of a NATS server in the same words.

use std::path::PathBuf;

use clap::Args;
use replicate::service::publish::Broker;

#[derive(Debug, Args)]
pub(super) struct Connect {
    /// NATS credentials: a .creds file, or one with the seed of an NKEY
    #[arg(long, value_name = "FILE")]
    creds: Option<PathBuf>,
    /// The JetStream domain that has the stream, if it is not the server's own
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The key that messages are signed with, the same at both ends
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl Connect {
    pub(super) fn broker(&self) -> Broker {
        Broker {
            creds: self.creds.clone(),
            domain: self.domain.clone(),
            key_file: self.key_file.clone(),
        }
    }
}
