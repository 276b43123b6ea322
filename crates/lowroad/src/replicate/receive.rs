//! `lowroad replicate receive`: a copy of a log that another machine ships, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says how far it is")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use control::shutdown::Shutdown;
use replicate::ship::tcp::{Client, Peer, Progress, Waits};
use serde_json::{Value, json};

use super::{nats, tcp};
use crate::exit::{self, Failure};

/// How long a signal may have to wait.
const STEP: Duration = Duration::from_millis(100);
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
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    nats: nats::Connect,
}

#[derive(Debug, Args)]
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
        match self.from.split_once("://") {
            Some(("tcp", peer)) => self.over_tcp(peer, json),
            Some(("nats" | "tls", _)) => self.over_nats(json),
            _ => Err(self.refused("is neither tcp://HOST:PORT nor nats://HOST:PORT/STREAM")),
        }
    }

    fn refused(&self, what: &str) -> Failure {
        Failure::Input(format!("{} {what}", self.from))
    }

    fn over_nats(&self, json: bool) -> Result<(), Failure> {
        let tls = nats::Tls {
            server_ca: self.tls.server_ca.as_deref(),
            cert: self.tls.cert.as_deref(),
            key: self.tls.key.as_deref(),
        };
        let options = self.nats.options(&self.from, tls)?;
        nats::receive(&self.to, options, self.fresh, json)
    }

    fn over_tcp(&self, peer: &str, json: bool) -> Result<(), Failure> {
        let Some(peer) = Peer::parse(peer) else {
            return Err(self.refused("is no tcp://HOST:PORT"));
        };
        let Tls {
            cert: Some(cert),
            key: Some(key),
            server_ca: Some(ca),
        } = &self.tls
        else {
            return Err(self.refused("needs --cert, --key and --server-ca"));
        };
        let shutdown = Shutdown::install().context("signals")?;
        let files = tcp::files(cert.clone(), key.clone(), ca.clone());
        let tls = files.client().map_err(tcp::failure)?;
        let client = Client::open(&self.to, peer, tls, self.fresh, Waits::default());
        let mut client = client.map_err(tcp::failure)?;
        let mut shown = Shown::default();
        while !shutdown.requested() {
            let progress = client.poll(STEP).map_err(tcp::failure)?;
            shown.show(self, progress, json)?;
        }
        let progress = client.finish().map_err(tcp::failure)?;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        if json {
            return exit::print(&format!("{}\n", json!({ "ended": object(&progress) })));
        }
        exit::print(&format!("{}\n", line(&progress)))
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
    fn show(&mut self, asked: &Receive, progress: &Progress, json: bool) -> Result<(), Failure> {
        if progress.connected && !self.ready {
            self.ready = true;
            announce(asked, progress, json)?;
        }
        if self.trouble != progress.trouble {
            self.trouble.clone_from(&progress.trouble);
            if let Some(trouble) = &self.trouble {
                eprintln!("\r\x1b[K{}: {trouble}; trying again", asked.from);
            }
        }
        if self.at.is_some_and(|at| at.elapsed() < SHOWN) {
            return Ok(());
        }
        self.at = Some(Instant::now());
        if json {
            let object = object(progress);
            if object != self.object {
                exit::print(&format!("{}\n", json!({ "status": object })))?;
                self.object = object;
            }
        } else if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{}", line(progress));
        }
        Ok(())
    }
}

fn announce(asked: &Receive, progress: &Progress, json: bool) -> Result<(), Failure> {
    if json {
        exit::print(&format!("{}\n", json!({ "ready": object(progress) })))?;
    } else {
        let (from, to, number) = (&asked.from, asked.to.display(), progress.number);
        exit::print(&format!("ready  from {from}  log {to}  record {number}\n"))?;
    }
    control::ready::notify().context("telling that it receives")?;
    Ok(())
}

fn lag(progress: &Progress) -> u64 {
    progress.tip.number.saturating_sub(progress.number)
}

fn line(progress: &Progress) -> String {
    let (number, epoch, behind) = (progress.number, progress.epoch, lag(progress));
    let apart = if progress.connected {
        ""
    } else {
        "  not connected"
    };
    format!("record {number}  epoch {epoch}  behind {behind} records{apart}")
}

fn object(progress: &Progress) -> Value {
    json!({
        "connected": progress.connected,
        "number": progress.number,
        "epoch": progress.epoch,
        "source_number": progress.tip.number,
        "source_epoch": progress.tip.epoch,
        "lag_records": lag(progress),
        "connects": progress.connects,
        "records": progress.records,
        "repeated": progress.repeated,
        "bytes": progress.bytes,
        "replaced": progress.replaced,
        "trouble": progress.trouble,
    })
}
