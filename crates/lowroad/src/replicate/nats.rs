//! The NATS flags that `publish` and `receive` share.

use std::path::PathBuf;

use clap::Args;
use replicate::service::publish::Broker;

#[derive(Debug, Args)]
#[command(next_help_heading = "NATS")]
pub(super) struct Connect {
    /// NATS credentials: a .creds file, or a file with the seed of an NKEY
    #[arg(long, value_name = "FILE")]
    creds: Option<PathBuf>,
    /// JetStream domain of the stream [default: the server's own]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Sign messages with this key, which must be the same at both ends
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
