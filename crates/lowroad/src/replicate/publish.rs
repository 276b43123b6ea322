//! `lowroad replicate publish`: publishes a log to a stream on NATS servers until a signal arrives.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use process::shutdown::Shutdown;
use replicate::service::publish::{self, Settings, Tls};
use replicate::service::{Progress as PartProgress, STEP};
use replicate::ship::nats::{self, Published};
use serde_json::json;

use super::nats::Connect;
use crate::exit::{self, Failure, OrFail as _};

/// Interval between changes of the progress line.
const REFRESH: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Publish {
    /// Folder of the log
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Publish to nats://HOST:PORT/STREAM, or to several HOST:PORT separated by commas; the stream is
    /// created if necessary
    #[arg(long, value_name = "URL")]
    to: String,
    /// Encrypt, and accept servers' certificates of this authority (PEM)
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,
    /// Encrypt, and present this certificate (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Number of servers that keep a new stream
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Maximum size of a new stream; lowroad waits while it is full
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Use an existing stream even if it can lose messages; receivers must then start again
    #[arg(long)]
    allow_loss: bool,
    /// Publish records only once they are on the log's disk, so that no receiver is ahead after a power loss
    #[arg(long)]
    synced: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Publish {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut publishing = self.settings().start()?;
        let mut reporter = Reporter::new(json);
        while !shutdown.requested() {
            let progress = publishing.step(STEP)?;
            reporter.show(progress)?;
        }
        let progress = publishing.finish()?;
        reporter.end(&progress)?;
        publish::unfinished(&progress).map_or(Ok(()), |error| Err(error.into()))
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

/// Prints progress and state changes.
struct Reporter {
    json: bool,
    at: Instant,
    ready: bool,
    waiting: Option<String>,
}

impl Reporter {
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
            self.print("ready", server, progress)?;
            control::ready::notify().context("notifying the service manager")?;
        }
        if progress.waiting != self.waiting {
            self.waiting.clone_from(&progress.waiting);
            if let Some(waiting) = &self.waiting {
                tracing::warn!("waiting: {waiting}");
            }
        }
        if self.at.elapsed() >= REFRESH && io::stderr().is_terminal() {
            self.at = Instant::now();
            eprint!("\r\x1b[K{}", line(progress));
        }
        Ok(())
    }

    fn print(&self, what: &str, server: &str, progress: &Published) -> Result<(), Failure> {
        if self.json {
            return exit::print(&format!(
                "{}\n",
                json!({ what: PartProgress::Publish(progress.clone()).object() })
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
                json!({ "ended": PartProgress::Publish(progress.clone()).object() })
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
