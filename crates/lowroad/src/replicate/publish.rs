//! `lowroad replicate publish`: a log into a stream that NATS servers keep, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use replicate::service::publish::{self, Settings, Tls};
use replicate::service::{Progress as Said, STEP};
use replicate::ship::nats::{self, Published};
use serde_json::json;

use super::nats::Connect;
use crate::exit::{self, Failure};

/// How often the line on the terminal changes.
const SHOWN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Publish {
    /// The folder of the log
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// nats://HOST:PORT/STREAM, or several HOST:PORT with commas between; the stream is made if there
    /// is none
    #[arg(long, value_name = "URL")]
    to: String,
    #[command(flatten)]
    connect: Connect,
    /// The authority that the servers' certificates have to be from (PEM): encrypts
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,
    /// Our certificate (PEM): encrypts
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// How many servers keep a stream that is made
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// How large a stream that is made may become; a full one is waited for
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Use a stream that is there although it can lose messages: receivers then have to begin afresh
    #[arg(long)]
    allow_loss: bool,
    /// Publish nothing before it is on the log's disk: a loss of power here leaves no receiver ahead
    #[arg(long)]
    synced: bool,
}

impl Publish {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut publishing = self.settings().start().map_err(super::failure)?;
        let mut shown = Shown::new(json);
        while !shutdown.requested() {
            let progress = publishing.step(STEP).map_err(super::failure)?;
            shown.show(progress)?;
        }
        let progress = publishing.finish().map_err(super::failure)?;
        shown.end(&progress)?;
        publish::unfinished(&progress).map_or(Ok(()), |error| Err(super::failure(error)))
    }

    fn settings(&self) -> Settings {
        Settings {
            log: self.log.clone(),
            to: self.to.clone(),
            tls: Tls {
                cert: self.cert.clone(),
                key: self.key.clone(),
                server_ca: self.server_ca.clone(),
            },
            broker: self.connect.broker(),
            stream: nats::Settings {
                replicas: self.replicas,
                max_bytes: self.max_bytes,
                allow_loss: self.allow_loss,
            },
            synced: self.synced,
        }
    }
}

/// What is said while it works.
struct Shown {
    json: bool,
    at: Instant,
    ready: bool,
    waiting: Option<String>,
}

impl Shown {
    fn new(json: bool) -> Self {
        Self {
            json,
            at: Instant::now(),
            ready: false,
            waiting: None,
        }
    }

    fn show(&mut self, progress: &Published) -> Result<(), Failure> {
        if let (false, false, Some(server)) = (self.ready, progress.behind, &progress.server) {
            self.ready = true;
            self.say("ready", server, progress)?;
            control::ready::notify().context("telling that it publishes")?;
        }
        if progress.waiting != self.waiting {
            self.waiting.clone_from(&progress.waiting);
            if let Some(waiting) = &self.waiting {
                tracing::warn!("waiting: {waiting}");
            }
        }
        if self.at.elapsed() >= SHOWN && io::stderr().is_terminal() {
            self.at = Instant::now();
            eprint!("\r\x1b[K{}", line(progress));
        }
        Ok(())
    }

    fn say(&self, what: &str, server: &str, progress: &Published) -> Result<(), Failure> {
        if self.json {
            return exit::print(&format!(
                "{}\n",
                json!({ what: Said::Publish(progress.clone()).object() })
            ));
        }
        exit::print(&format!("{what}  server {server}  {}\n", line(progress)))
    }

    fn end(&self, progress: &Published) -> Result<(), Failure> {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if self.json {
            return exit::print(&format!(
                "{}\n",
                json!({ "ended": Said::Publish(progress.clone()).object() })
            ));
        }
        exit::print(&format!("{}\n", line(progress)))
    }
}

fn line(progress: &Published) -> String {
    format!(
        "record {}  messages {}  bytes {}  in flight {}  retries {}  published again {}",
        progress.number,
        progress.messages,
        progress.bytes,
        progress.in_flight,
        progress.retries,
        progress.lost
    )
}
