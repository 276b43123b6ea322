//! Publishes a log to a stream on NATS servers.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Error, LAST, STEP};
use crate::log;
use crate::ship::Key;
use crate::ship::nats::{self, Options, Published, Publisher};

#[derive(Clone, Debug)]
pub struct Settings {
    pub log: PathBuf,
    /// `nats://HOST:PORT,…/STREAM`
    pub to: String,
    pub tls: Tls,
    pub broker: Broker,
    /// The settings of a new stream.
    pub stream: nats::Settings,
    /// As [`Options::synced`].
    pub synced: bool,
}

/// The files of an encrypted connection.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Our certificate and its key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The authority that must have issued the servers' certificates.
    pub server_ca: Option<PathBuf>,
}

/// What a NATS server requires, and what both ends of a stream agree on.
#[derive(Clone, Debug, Default)]
pub struct Broker {
    /// A `.creds` file, or a file with the seed of an NKEY.
    pub creds: Option<PathBuf>,
    /// The JetStream domain of the stream, if it is not the server's own.
    pub domain: Option<String>,
    /// The file with the key that signs messages.
    pub key_file: Option<PathBuf>,
}

impl Broker {
    pub(super) fn options(&self, url: &str, tls: &Tls) -> Result<Options, Error> {
        let input = |error: io::Error| Error::Input(error.to_string());
        let mut options = Options::new(url).map_err(input)?;
        options.domain.clone_from(&self.domain);
        let own = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            _ => return Err(Error::Input("--cert and --key go together".to_owned())),
        };
        if tls.server_ca.is_some() || own.is_some() {
            options.tls(tls.server_ca.as_deref(), own).map_err(input)?;
        }
        if let Some(path) = &self.creds {
            let read = options.credentials(path);
            read.map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
        }
        if let Some(path) = &self.key_file {
            let key = Key::read(path).map_err(|error| Error::Input(error.to_string()))?;
            options.key = Some(key);
        }
        Ok(options)
    }
}

impl Settings {
    /// Checks that the address is valid and all files can be read.
    ///
    /// # Errors
    /// [`Error::Input`]
    pub fn check(&self) -> Result<(), Error> {
        self.broker.options(&self.to, &self.tls).map(drop)
    }

    /// # Errors
    /// [`Error::Input`], also if there is no such log.
    pub fn start(&self) -> Result<Publishing, Error> {
        log::check_followed(&self.log)?;
        let mut options = self.broker.options(&self.to, &self.tls)?;
        options.synced = self.synced;
        let publisher = Publisher::new(&self.log, options, self.stream);
        let publisher =
            publisher.map_err(|error| Error::Input(format!("{}: {error}", self.log.display())))?;
        Ok(Publishing {
            publisher,
            progress: Published::default(),
        })
    }
}

#[derive(Debug)]
pub struct Publishing {
    publisher: Publisher,
    progress: Published,
}

impl Publishing {
    /// As [`Publisher::step`].
    ///
    /// # Errors
    /// [`Error::Nats`]
    pub fn step(&mut self, wait: Duration) -> Result<&Published, Error> {
        self.progress = self.publisher.step(wait)?;
        Ok(&self.progress)
    }

    /// Waits a moment for acknowledgements, and sends the rest as long as the stream accepts it.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn finish(mut self) -> Result<Published, Error> {
        let begun = Instant::now();
        let left = |progress: &Published| {
            progress.in_flight > 0 || progress.behind && progress.waiting.is_none()
        };
        // The latest records are found only by reading the log.
        self.step(Duration::ZERO)?;
        while left(&self.progress) && begun.elapsed() < LAST {
            self.step(STEP)?;
        }
        Ok(self.progress)
    }
}

/// The error for records that a stream has not acknowledged at the end, if any.
pub fn unfinished(progress: &Published) -> Option<Error> {
    let waiting = progress.waiting.as_deref().unwrap_or_default();
    (progress.in_flight > 0).then(|| {
        Error::Unfinished(format!(
            "{} messages have no acknowledgement: {waiting}",
            progress.in_flight
        ))
    })
}
