//! `lowroad netbench serve`: the other end of tests, until a signal.
#![expect(clippy::print_stderr, reason = "the line that says what goes on")]

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use control::limits;
use control::shutdown::Shutdown;
use control::units::Span;
use netbench::PORT;
use netbench::json::status as status_json;
use netbench::server::{Error, Limits, Ports, Server, Settings, Status};
use serde_json::json;

use crate::exit::{self, Failure};

/// How often what has changed is said.
const SHOWN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Where to wait for clients; port 0 takes any
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    listen: SocketAddr,
    /// Serve only who knows the first line of this file; needed where other machines reach it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How many clients to take at once
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().clients)]
    clients: usize,
    /// The longest test, with its warm-up
    #[arg(long, value_name = "DURATION", default_value_t = Span(Limits::default().duration))]
    max_duration: Span,
    /// Send datagrams at no more than so many megabits a second, to each client
    #[arg(long, value_name = "MBPS")]
    max_mbps: Option<f64>,
    /// Where tests' own connections and datagrams come in, behind a firewall or published ports
    #[arg(long, value_name = "PORT[-PORT]")]
    data_ports: Option<Ports>,
}

impl Serve {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        if self
            .max_mbps
            .is_some_and(|rate| rate.is_nan() || rate <= 0.0)
        {
            return Err(Failure::Input("--max-mbps is above 0".to_owned()));
        }
        let shutdown = Shutdown::install().context("signals")?;
        limits::raise_descriptors();
        let server = Server::start(Settings {
            listen: self.listen,
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
            failed @ Error::Listen { .. } => Failure::Failed(failed.into()),
        })?;
        let listen = server.address();
        exit::print(&match json {
            true => format!("{}\n", json!({ "ready": { "listen": listen.to_string() } })),
            false => format!("ready  listen {listen}\n"),
        })?;
        control::ready::notify().context("telling that it serves")?;
        let mut shown = Status::default();
        while !shutdown.wait(SHOWN) {
            let status = server.status();
            if status == shown {
                continue;
            }
            shown = status;
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
