//! How a job that serves is asked: by its control socket, and over HTTP where that is configured.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use control::config::Http;
use control::{Kind, Request, http, unix};
use serde_json::Value;

use crate::exit::Failure;

/// What serves a job's methods until it is dropped.
pub(crate) struct Interface {
    _socket: unix::Server,
    web: Option<http::Server>,
}

impl Interface {
    /// `handle` carries out a request, and `metrics` writes one scrape.
    pub(crate) fn start<T: Send + Sync + 'static>(
        job: &Arc<T>,
        control: &Path,
        http: Option<&Http>,
        handle: fn(&T, &Request) -> Result<Value, control::Error>,
        metrics: fn(&T) -> String,
    ) -> Result<Self, Failure> {
        if let Some(folder) = control.parent() {
            // Where it cannot be made, binding the socket says why.
            let _made = std::fs::create_dir_all(folder);
        }
        let handled = Arc::clone(job);
        let socket = unix::Server::start(control, move |request| handle(&handled, request))
            .map_err(|error| Failure::Failed(error.into()))?;
        let web = http.map(|http| serve_http(http, job, handle, metrics));
        Ok(Self {
            _socket: socket,
            web: web.transpose()?.flatten(),
        })
    }

    /// Of HTTP, where that is served.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.web.as_ref().map(http::Server::address)
    }
}

/// The same methods over HTTP, and the metrics; off while there is no token file.
fn serve_http<T: Send + Sync + 'static>(
    http: &Http,
    job: &Arc<T>,
    handle: fn(&T, &Request) -> Result<Value, control::Error>,
    metrics: fn(&T) -> String,
) -> Result<Option<http::Server>, Failure> {
    if !http.token_file.exists() {
        tracing::warn!(
            "HTTP is off: there is no token file {}",
            http.token_file.display()
        );
        return Ok(None);
    }
    let (handled, measured) = (Arc::clone(job), Arc::clone(job));
    http::Server::start(
        http::Config {
            address: http.listen,
            token: http.token_file.clone(),
            hosts: Vec::new(),
            limits: control::Limits::default(),
        },
        move |request| handle(&handled, request),
        move || metrics(&measured),
    )
    .map(Some)
    .map_err(|error| Failure::Failed(error.into()))
}

/// Why a job that runs did not answer as asked.
pub(crate) fn failure(error: control::Error) -> Failure {
    match error.kind {
        Kind::Conflict | Kind::Failed | Kind::Unreachable | Kind::Missing => {
            Failure::Failed(error.into())
        }
        _ => Failure::Input(error.message),
    }
}
