//! `lowroad replicate receive`: keeps a copy of a log that another machine ships, until a signal
//! arrives.
#![expect(clippy::print_stderr, reason = "the progress line")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use process::shutdown::Shutdown;
use replicate::service::keep::Keep;
use replicate::service::receive::{ReceiveProgress, Settings, behind};
use replicate::service::{Progress as PartProgress, STEP, publish};
use serde_json::{Value, json};
use units::Size;

use super::nats;
use crate::exit::{self, Failure, OrFail as _};

/// Interval between status reports.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Receive {
    /// Source of the log: tcp://HOST:PORT of `lowroad replicate serve`, or nats://HOST:PORT/STREAM of
    /// `lowroad replicate publish`
    #[arg(value_name = "URL")]
    from: String,
    /// Folder of the copy, created if necessary; an existing copy is continued
    #[arg(long, value_name = "LOG")]
    to: PathBuf,
    /// Replace a copy that cannot be continued, because the source has compacted the next records or the
    /// copy is of another log
    #[arg(long)]
    fresh: bool,
    /// Discard epochs that the copy has and a promoted source does not have
    #[arg(long)]
    rollback: bool,
    /// Keep the copy at about this size, as in 10GiB: epochs older than the newest half of SIZE are folded
    /// into one [default: the copy grows]
    #[arg(long, value_name = "SIZE")]
    keep: Option<Size>,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    nats: nats::Connect,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
struct Tls {
    /// Certificate of this replica (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Key of the certificate (PEM), readable by its owner only
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Accept a server's certificate of this authority (PEM)
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,
}

impl Receive {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let settings = self.settings();
        settings.check()?;
        let mut receiving = settings.start()?;
        let keep = settings.keep.map(|bytes| Keep::begin(&self.to, bytes));
        let keep = keep.transpose()?;
        let mut reporter = Reporter::default();
        while !shutdown.requested() {
            let received = receiving.step(STEP)?;
            reporter.show(self, &received, json)?;
        }
        drop(keep);
        let received = receiving.finish()?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if json {
            return exit::print(&format!("{}\n", json!({ "ended": object(&received) })));
        }
        exit::print(&format!("{}\n", line(&received)))
    }

    fn settings(&self) -> Settings {
        let Tls {
            cert,
            key,
            server_ca,
        } = self.tls.clone();
        Settings {
            from: self.from.clone(),
            log: self.to.clone(),
            fresh: self.fresh,
            rollback: self.rollback,
            keep: self.keep.map(|Size(bytes)| bytes),
            tls: publish::Tls {
                cert,
                key,
                server_ca,
            },
            broker: self.nats.broker(),
        }
    }
}

/// Prints state changes; has the last printed state.
#[derive(Default)]
struct Reporter {
    ready: bool,
    trouble: Option<String>,
    object: Value,
    at: Option<Instant>,
}

impl Reporter {
    fn show(
        &mut self,
        arguments: &Receive,
        received: &ReceiveProgress,
        json: bool,
    ) -> Result<(), Failure> {
        if received.connected() && !self.ready {
            self.ready = true;
            announce(arguments, received, json)?;
        }
        if self.trouble.as_deref() != received.trouble() {
            self.trouble = received.trouble().map(str::to_owned);
            if let Some(trouble) = &self.trouble {
                eprintln!("\r\x1b[K{}: {trouble}; trying again", arguments.from);
            }
        }
        if self.at.is_some_and(|at| at.elapsed() < REFRESH) {
            return Ok(());
        }
        self.at = Some(Instant::now());
        if json {
            let object = object(received);
            if object != self.object {
                exit::print(&format!("{}\n", json!({ "status": object })))?;
                self.object = object;
            }
        } else if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{}", line(received));
        }
        Ok(())
    }
}

fn announce(arguments: &Receive, received: &ReceiveProgress, json: bool) -> Result<(), Failure> {
    if json {
        exit::print(&format!("{}\n", json!({ "ready": object(received) })))?;
    } else {
        let (from, to, number) = (
            &arguments.from,
            arguments.to.display(),
            received.reached().0,
        );
        exit::print(&format!("ready  from {from}  log {to}  record {number}\n"))?;
    }
    control::ready::notify().context("notifying the service manager")?;
    Ok(())
}

fn object(received: &ReceiveProgress) -> Value {
    PartProgress::Receive(received.clone()).object()
}

fn line(received: &ReceiveProgress) -> String {
    let (number, epoch) = received.reached();
    let behind = match received {
        ReceiveProgress::Tcp(progress, _) => format!("{} records", behind(progress)),
        ReceiveProgress::Nats(progress) => format!("{} messages", progress.pending),
    };
    let apart = if received.connected() {
        ""
    } else {
        "  not connected"
    };
    format!("record {number}  epoch {epoch}  behind {behind}{apart}")
}
