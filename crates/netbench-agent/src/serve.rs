//! The server, until a signal.

use std::time::Duration;

use netbench::json;
use netbench::server::{Error, Limits, ListenAddress, Server, Settings, Status};
use pico_args::Arguments;
use process::limits;
use process::shutdown::Shutdown;
use units::Span;

use crate::{Failure, finish, line, option, token};

/// The interval of updates of the status.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let usual = Limits::default();
    let rate: Option<f64> = option(&mut arguments, "--max-mbps")?;
    if rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err(Failure::input("--max-mbps is a number above 0"));
    }
    let listen: Option<ListenAddress> = option(&mut arguments, "--listen")?;
    let settings = Settings {
        listen: listen.unwrap_or_default().0,
        token: token(&mut arguments)?,
        limits: Limits {
            clients: option(&mut arguments, "--clients")?.unwrap_or(usual.clients),
            duration: option(&mut arguments, "--max-duration")?
                .map_or(usual.duration, |Span(duration)| duration),
            bits_per_s: rate.map(|rate| rate * 1e6),
        },
        data_ports: option(&mut arguments, "--data-ports")?,
    };
    finish(arguments)?;
    let shutdown = Shutdown::install().map_err(Failure::failed)?;
    limits::raise_descriptors();
    let server = Server::start(settings).map_err(|error| match error {
        Error::NoToken(_) => Failure::input(format!("{error} with --token-file")),
        other => other.into(),
    })?;
    let listen = server.address().to_string();
    line(&serde_json::json!({ "ready": { "listen": listen } }))?;
    let mut printed = Status::default();
    while !shutdown.wait(STATUS_INTERVAL) {
        let status = server.status();
        if status != printed {
            printed = status;
            line(&serde_json::json!({ "status": json::status(&status) }))?;
        }
    }
    line(&serde_json::json!({ "ended": json::status(&server.status()) }))
}
