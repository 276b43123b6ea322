//! The control socket of a serving job, and its HTTP API where that is configured.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use control::config::Http;
use control::metrics::MetricSet;
use control::{Request, http, unix};
use serde_json::Value;

use crate::exit::{Failure, OrFail as _};

/// Serves a job's methods until it is dropped.
pub(crate) struct ControlEndpoint {
    _socket: unix::Server,
    web: Option<http::Server>,
}

impl ControlEndpoint {
    /// `handle` carries out a request, and `metrics` collects one scrape.
    pub(crate) fn start<T: Send + Sync + 'static>(
        job: &Arc<T>,
        control: &Path,
        http: Option<&Http>,
        handle: fn(&T, &Request) -> Result<Value, control::Error>,
        metrics: fn(&T) -> MetricSet,
    ) -> Result<Self, Failure> {
        if let Some(folder) = control.parent() {
            // If this fails, binding the socket reports why.
            let _ignored = std::fs::create_dir_all(folder);
        }
        let handled = Arc::clone(job);
        let socket =
            unix::Server::start(control, move |request| handle(&handled, request)).or_fail()?;
        let web = http.map(|http| serve_http(http, job, handle, metrics));
        Ok(Self {
            _socket: socket,
            web: web.transpose()?.flatten(),
        })
    }

    /// The address of the HTTP API, if it is served.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.web.as_ref().map(http::Server::address)
    }
}

/// The same methods over HTTP, and the metrics; none without a token file.
fn serve_http<T: Send + Sync + 'static>(
    http: &Http,
    job: &Arc<T>,
    handle: fn(&T, &Request) -> Result<Value, control::Error>,
    metrics: fn(&T) -> MetricSet,
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
    .or_fail()
}
