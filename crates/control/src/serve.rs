//! The parts that both servers share: the request, the handler, the limits, and the thread they run on.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{Error, Kind};

/// A method and its parameters: `{"method": "status", "params": {"stream": "cam1"}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub method: String,
    /// `null` when absent.
    #[serde(default)]
    pub params: Value,
}

impl Request {
    /// The parameters as a type; absent parameters read as an empty object.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let params = match &self.params {
            Value::Null => Value::Object(serde_json::Map::new()),
            given => given.clone(),
        };
        serde_json::from_value(params)
            .map_err(|error| Error::bad_request(format!("{}: {error}", self.method)))
    }
}

/// A program's methods. Each call has a thread of its own, so it may block.
pub(crate) type Handler = dyn Fn(&Request) -> Result<Value, Error> + Send + Sync;

/// The limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one request.
    pub request: usize,
    /// How long a request may take to arrive, from its first byte to its last.
    pub arrival: Duration,
    /// How long a client may leave the server waiting between an answer and the next request.
    pub idle: Duration,
    /// Connections served at a time. For one more, the one that is idle for longest is closed.
    pub clients: usize,
    /// How long a connection may be idle before it is closed for another.
    pub eviction_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: 1 << 20,
            arrival: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            clients: 128,
            eviction_delay: Duration::from_millis(250),
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{}: another process serves this socket; stop it or choose another path", .0.display())]
    InUse(PathBuf),
    #[error("{}: exists and is not a socket; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
    #[error("{}: {cause}", path.display())]
    Socket { path: PathBuf, cause: io::Error },
    #[error("{address}: {cause}")]
    Address { address: String, cause: io::Error },
    #[error("{}: {reason}", path.display())]
    Token { path: PathBuf, reason: String },
    #[error("control thread: {0}")]
    Thread(io::Error),
}

/// Runs a handler off the reactor, so that a slow request does not delay others.
pub(crate) async fn handle(handler: Arc<Handler>, request: Request) -> Result<Value, Error> {
    tokio::task::spawn_blocking(move || handler(&request))
        .await
        .unwrap_or_else(|_| Err(Error::new(Kind::Failed, "the request's handler panicked")))
}

/// A thread with a reactor; stopping ends its connections.
#[derive(Debug)]
pub(crate) struct Reactor {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reactor {
    /// Runs what `serve` makes inside the reactor, until dropped.
    pub(crate) fn start<S, F>(name: &str, serve: S) -> Result<Self, StartError>
    where
        S: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve() => {}
                        _ = stopped => {}
                    }
                });
                // A handler that still runs keeps its thread, not ours.
                runtime.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
