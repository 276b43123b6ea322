//! `lowroad netbench serve`: the server, until a signal.
#![expect(clippy::print_stderr, reason = "the status line")]

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use netbench::json::status as status_json;
use netbench::server::{Error, Limits, ListenAddress, Ports, Server, Settings, Status};
use process::limits;
use process::shutdown::Shutdown;
use serde_json::json;
use units::Span;

use crate::exit::{self, Failure, OrFail as _};

/// The interval of updates of the status.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Listen at this address; port 0 chooses a port
    #[arg(long, value_name = "ADDR:PORT", default_value_t)]
    listen: ListenAddress,
    /// Serve only clients that know the first line of this file; required unless the address is local
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Accept at most this many clients at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients)]
    clients: usize,
    /// Refuse tests longer than this, including the warm-up
    #[arg(long, value_name = "DURATION", default_value_t = Span(Limits::default().duration))]
    max_duration: Span,
    /// Send datagrams to each client at no more than this rate
    #[arg(long, value_name = "MBPS")]
    max_mbps: Option<f64>,
    /// Use these ports for the tests' connections and datagrams, behind a firewall or published ports
    #[arg(long, value_name = "PORT[-PORT]")]
    data_ports: Option<Ports>,
}

impl Serve {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        if self
            .max_mbps
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return Err(Failure::Input("--max-mbps is a number above 0".to_owned()));
        }
        let shutdown = Shutdown::install().context("signals")?;
        limits::raise_descriptors();
        let server = Server::start(Settings {
            listen: self.listen.0,
            token: super::token(self.token_file.as_deref())?,
            limits: Limits {
                clients: self.clients,
                duration: self.max_duration.0,
                bits_per_s: self.max_mbps.map(|rate| rate * 1e6),
            },
            data_ports: self.data_ports.clone(),
        })
        .map_err(|error| match error {
            Error::NoToken(_) => Failure::Input(format!("{error} with --token-file")),
            other => other.into(),
        })?;
        let listen = server.address();
        exit::print(&match json {
            true => format!("{}\n", json!({ "ready": { "listen": listen.to_string() } })),
            false => format!("ready  listen {listen}\n"),
        })?;
        control::ready::notify().context("notifying the service manager")?;
        let mut last = Status::default();
        while !shutdown.wait(STATUS_INTERVAL) {
            let status = server.status();
            if status == last {
                continue;
            }
            last = status;
            if json {
                exit::print(&format!("{}\n", json!({ "status": status_json(&status) })))?;
            } else if io::stderr().is_terminal() {
                eprint!("\r\x1b[K{}", line(&status));
            }
        }
        let status = server.status();
        drop(server);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        exit::print(&match json {
            true => format!("{}\n", json!({ "ended": status_json(&status) })),
            false => format!("{}\n", line(&status)),
        })
    }
}

fn line(status: &Status) -> String {
    let Status {
        clients,
        tests,
        refused,
        strangers,
        broken,
    } = status;
    format!(
        "clients {clients}  tests {tests}  broken {broken}  refused {refused}  strangers {strangers}"
    )
}
