//! `lowroad replicate receive`: a copy of a log that another machine ships, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use control::units::Size;
use replicate::service::keep::Keep;
use replicate::service::receive::{Received, Settings, behind};
use replicate::service::{Progress as Said, STEP, publish};
use serde_json::{Value, json};

use super::nats;
use crate::exit::{self, Failure};

/// How often what has changed is said.
const SHOWN: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Receive {
    /// Who ships it: tcp://HOST:PORT, which `lowroad replicate serve` listens on, or
    /// nats://HOST:PORT/STREAM, which `lowroad replicate publish` publishes to
    #[arg(value_name = "URL")]
    from: String,
    /// The folder of the copy, made if there is none; one that is there goes on
    #[arg(long, value_name = "LOG")]
    to: PathBuf,
    /// Replace a copy that cannot go on: because what comes next was compacted away at the source, or
    /// because it is a copy of another log
    #[arg(long)]
    fresh: bool,
    /// Keep the copy to about this size, as in 10GiB: its older part is folded meanwhile, and epochs before the newest
    /// half of SIZE are forgotten [default: the copy grows]
    #[arg(long, value_name = "SIZE")]
    keep: Option<Size>,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    nats: nats::Connect,
}

#[derive(Clone, Debug, Args)]
struct Tls {
    /// This replica's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The certificate's key (PEM), readable by its owner only
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The authority that the server's certificate has to be from (PEM)
    #[arg(long, value_name = "FILE")]
    server_ca: Option<PathBuf>,
}

impl Receive {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let settings = self.settings();
        settings.check().map_err(super::failure)?;
        let mut receiving = settings.start().map_err(super::failure)?;
        let keep = settings.keep.map(|bytes| Keep::begin(&self.to, bytes));
        let keep = keep.transpose().map_err(super::failure)?;
        let mut shown = Shown::default();
        while !shutdown.requested() {
            let received = receiving.step(STEP).map_err(super::failure)?;
            shown.show(self, &received, json)?;
        }
        drop(keep);
        let received = receiving.finish().map_err(super::failure)?;
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

/// What was said last, and when.
#[derive(Default)]
struct Shown {
    ready: bool,
    trouble: Option<String>,
    object: Value,
    at: Option<Instant>,
}

impl Shown {
    fn show(&mut self, asked: &Receive, received: &Received, json: bool) -> Result<(), Failure> {
        if received.connected() && !self.ready {
            self.ready = true;
            announce(asked, received, json)?;
        }
        if self.trouble.as_deref() != received.trouble() {
            self.trouble = received.trouble().map(str::to_owned);
            if let Some(trouble) = &self.trouble {
                eprintln!("\r\x1b[K{}: {trouble}; trying again", asked.from);
            }
        }
        if self.at.is_some_and(|at| at.elapsed() < SHOWN) {
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

fn announce(asked: &Receive, received: &Received, json: bool) -> Result<(), Failure> {
    if json {
        exit::print(&format!("{}\n", json!({ "ready": object(received) })))?;
    } else {
        let (from, to, number) = (&asked.from, asked.to.display(), received.reached().0);
        exit::print(&format!("ready  from {from}  log {to}  record {number}\n"))?;
    }
    control::ready::notify().context("telling that it receives")?;
    Ok(())
}

fn object(received: &Received) -> Value {
    Said::Receive(received.clone()).object()
}

fn line(received: &Received) -> String {
    let (number, epoch) = received.reached();
    let behind = match received {
        Received::Tcp(progress, _) => format!("{} records", behind(progress)),
        Received::Nats(progress) => format!("{} messages", progress.pending),
    };
    let apart = if received.connected() {
        ""
    } else {
        "  not connected"
    };
    format!("record {number}  epoch {epoch}  behind {behind}{apart}")
}
