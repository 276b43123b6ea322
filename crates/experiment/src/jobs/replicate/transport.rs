//! How a tree's changes come to its copies: the arms of the trials of lag.

use std::env;
use std::ffi::OsString;

use datapath::Missing;

use crate::program::program;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// `apply` reads the log that the capture writes.
    File,
    /// `serve` and `receive`, over TLS.
    Tcp,
    /// `publish` and `receive`, by one NATS server.
    Nats,
}

impl Transport {
    pub(super) const ALL: [Self; 3] = [Self::File, Self::Tcp, Self::Nats];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Tcp => "tcp",
            Self::Nats => "nats",
        }
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    pub(super) fn check(self) -> Result<(), Missing> {
        match self {
            Self::Nats if env::var_os(NATS_SERVER).is_none() => {
                program("nats-server", "apt-get install nats-server")
            }
            _ => Ok(()),
        }
    }
}

/// Names a server that is not in PATH.
const NATS_SERVER: &str = "LOWROAD_NATS_SERVER";

pub(super) fn nats_server() -> OsString {
    env::var_os(NATS_SERVER).unwrap_or_else(|| "nats-server".into())
}
