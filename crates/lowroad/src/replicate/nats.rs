//! What `publish` and `receive` ask of a NATS server in the same words, and receiving from one.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use replicate::ship::nats::{Error, Options, Received, Receiver};
use replicate::ship::{Key, Sink};
use serde_json::json;

use crate::exit::{self, Failure};

/// How long a signal may have to wait.
const STEP: Duration = Duration::from_millis(100);
/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);

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

/// The files of a connection that is encrypted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tls<'a> {
    pub(super) server_ca: Option<&'a Path>,
    pub(super) cert: Option<&'a Path>,
    pub(super) key: Option<&'a Path>,
}

impl Connect {
    pub(super) fn options(&self, url: &str, tls: Tls<'_>) -> Result<Options, Failure> {
        let input = |error: io::Error| Failure::Input(error.to_string());
        let mut options = Options::new(url).map_err(input)?;
        options.domain.clone_from(&self.domain);
        let own = match (tls.cert, tls.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Failure::Input("--cert and --key go together".to_owned())),
        };
        if tls.server_ca.is_some() || own.is_some() {
            options.tls(tls.server_ca, own).map_err(input)?;
        }
        if let Some(path) = &self.creds {
            let read = options.credentials(path);
            read.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        }
        if let Some(path) = &self.key_file {
            let key = Key::read(path).map_err(|error| Failure::Input(error.to_string()))?;
            options.key = Some(key);
        }
        Ok(options)
    }
}

/// `lowroad replicate receive nats://…`, until a signal.
pub(super) fn receive(to: &Path, options: Options, fresh: bool, json: bool) -> Result<(), Failure> {
    let shutdown = Shutdown::install().context("signals")?;
    let sink = Sink::open(to).map_err(super::of_log)?;
    let mut receiver = Receiver::new(sink, options);
    let (mut ready, mut waiting, mut fresh) = (false, None, fresh);
    let mut shown = Instant::now();
    while !shutdown.requested() {
        let progress = match receiver.step(STEP) {
            Err(error) if fresh && error.needs_another_copy() => {
                tracing::warn!("{error}: beginning afresh");
                fresh = false;
                receiver.clear().map_err(failure)?;
                continue;
            }
            progress => progress.map_err(failure)?,
        };
        if let (false, None, Some(server)) = (ready, &progress.waiting, &progress.server) {
            ready = true;
            say(&format!("ready  server {server}"), "ready", &progress, json)?;
            control::ready::notify().context("telling that it receives")?;
        }
        if progress.waiting != waiting {
            waiting.clone_from(&progress.waiting);
            if let Some(waiting) = &waiting {
                tracing::warn!("waiting: {waiting}");
            }
        }
        if shown.elapsed() >= SHOWN && io::stderr().is_terminal() {
            shown = Instant::now();
            eprint!("\r\x1b[K{}", line(&progress));
        }
    }
    let progress = receiver.finish().map_err(failure)?;
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    say("ended", "ended", &progress, json)
}

fn say(words: &str, what: &str, progress: &Received, json: bool) -> Result<(), Failure> {
    if json {
        return exit::print(&format!("{}\n", json!({ what: object(progress) })));
    }
    exit::print(&format!("{words}  {}\n", line(progress)))
}

fn line(progress: &Received) -> String {
    let Received {
        number,
        epoch,
        pending,
        retries,
        ..
    } = progress;
    format!("record {number}  epoch {epoch}  behind {pending} messages  retries {retries}")
}

fn object(progress: &Received) -> serde_json::Value {
    json!({
        "number": progress.number,
        "epoch": progress.epoch,
        "messages": progress.messages,
        "repeated": progress.duplicates,
        "pending_messages": progress.pending,
        "retries": progress.retries,
        "server": progress.server,
    })
}

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Settings { .. } | Error::OtherLog { .. } => Failure::Input(error.to_string()),
        failed => Failure::Failed(failed.into()),
    }
}
