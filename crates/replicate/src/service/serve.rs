//! Serves a log to replicas over TCP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use super::{Error, LAST, STEP};
use crate::log;
use crate::ship::Source;
use crate::ship::tcp::{Files, Limits, Server};

#[derive(Clone, Debug)]
pub struct Settings {
    pub log: PathBuf,
    /// Port 0 selects a free port.
    pub listen: SocketAddr,
    pub files: Files,
    /// The most replicas at once.
    pub replicas: usize,
    /// As [`Limits::synced`].
    pub synced: bool,
}

impl Settings {
    /// Checks that the certificates and the key can be read.
    ///
    /// # Errors
    /// [`Error::Tcp`] names the file.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.files.server().map(drop)?)
    }

    /// # Errors
    /// [`Error::Tcp`]
    pub fn start(&self) -> Result<Server, Error> {
        log::check_followed(&self.log)?;
        let tls = self.files.server()?;
        let limits = Limits {
            replicas: self.replicas,
            synced: self.synced,
            ..Limits::default()
        };
        Ok(Server::start(&self.log, self.listen, tls, limits)?)
    }

    /// Waits a moment until the connected replicas have the whole log. A replica that does not keep
    /// up continues from its position at the next connection.
    ///
    /// # Errors
    /// [`Error::Log`]
    pub(super) fn drain(&self, server: &Server) -> Result<(), Error> {
        let (mut source, mut last) = (Source::late(&self.log)?, 0);
        while let Some(record) = source.read()? {
            last = record.number;
        }
        let begun = Instant::now();
        let has_all = |status: crate::ship::tcp::Status| {
            let mut replicas = status.replicas.iter();
            status.tip.number >= last && replicas.all(|replica| replica.number >= last)
        };
        while !has_all(server.status()) && begun.elapsed() < LAST {
            thread::sleep(STEP);
        }
        Ok(())
    }
}
