//! JSON lines over a unix socket: a request a line in, an answer a line out.
//!
//! The socket file's mode (0660) and its folder decide who may connect.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::connection_limit::{ConnectionLimit, Permit};
use crate::serve::{Handler, Limits, Reactor, Request, StartError, handle};
use crate::{Error, Kind};

/// A served socket. Dropping it ends all connections and removes the file.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    _reactor: Reactor,
}

impl Server {
    /// Serves `handler` at `path`; returns once clients can connect. Each request runs on a
    /// thread of its own, so the handler may block.
    ///
    /// A socket file left by a dead process is replaced; one that a process still serves is
    /// [`StartError::InUse`].
    pub fn start(
        path: impl Into<PathBuf>,
        handler: impl Fn(&Request) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        Self::with_limits(path, Limits::default(), handler)
    }

    /// As [`Server::start`], with these limits.
    pub fn with_limits(
        path: impl Into<PathBuf>,
        limits: Limits,
        handler: impl Fn(&Request) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let path = path.into();
        refuse_if_served(&path)?;
        let listener = bind(&path).map_err(|cause| StartError::Socket {
            path: path.clone(),
            cause,
        })?;
        let handler: Arc<Handler> = Arc::new(handler);
        let reactor = Reactor::start("control-unix", move || async move {
            match UnixListener::from_std(listener) {
                Ok(listener) => accept(listener, limits, handler).await,
                Err(error) => tracing::error!("control socket: {error}"),
            }
        })?;
        Ok(Self {
            path,
            _reactor: reactor,
        })
    }

    /// The socket that clients connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn refuse_if_served(path: &Path) -> Result<(), StartError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(StartError::Socket {
            path: path.into(),
            cause,
        }),
        Ok(file) if !file.file_type().is_socket() => Err(StartError::NotASocket(path.into())),
        Ok(_) => match BlockingStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(cause) => Err(StartError::Socket {
                path: path.into(),
                cause,
            }),
            Ok(_) => Err(StartError::InUse(path.into())),
        },
    }
}

/// Binds under another name, sets the mode and renames: the socket never exists with a mode that
/// lets others in, and a stale file is replaced in one step.
fn bind(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", process::id()));
    let temporary = path.with_file_name(name);
    let _ = fs::remove_file(&temporary);
    let listener = std::os::unix::net::UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o660))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
    Ok(listener)
}

async fn accept(listener: UnixListener, limits: Limits, handler: Arc<Handler>) {
    let connection_limit = ConnectionLimit::new(&limits);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let permit = connection_limit.acquire().await;
                let handler = handler.clone();
                tokio::spawn(async move {
                    // An error here is the client's connection ending.
                    let _ = converse(stream, &permit, limits, handler).await;
                });
            }
            Err(error) => {
                tracing::warn!("control socket: {error}");
                // Out of descriptors, most likely: accepting again at once would spin.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    mut stream: UnixStream,
    permit: &Permit,
    limits: Limits,
    handler: Arc<Handler>,
) -> io::Result<()> {
    let (input, mut output) = stream.split();
    let mut input = BufReader::new(input);
    loop {
        let next = permit.unless_evicted(next_line(&mut input, &limits)).await;
        let answer = match next.unwrap_or(Ok(Line::Crowded))? {
            Line::End => return Ok(()),
            Line::Late => {
                let error = Error::bad_request("no whole request arrived in time; closing");
                return output.try_write(&line(Err(error))).map(drop);
            }
            Line::Crowded => {
                let error = Error::new(Kind::Unreachable, "too many clients at once; try again");
                return output.try_write(&line(Err(error))).map(drop);
            }
            Line::TooLong => Err(Error::too_large(limits.request)),
            Line::Text(text) => match serde_json::from_slice::<Request>(&text) {
                Ok(request) => permit.work(handle(handler.clone(), request)).await,
                Err(error) => Err(Error::bad_request(format!(
                    "not a request of the form {{\"method\": .., \"params\": ..}}: {error}"
                ))),
            },
        };
        let answer = line(answer);
        let written = timeout(limits.idle, output.write_all(&answer));
        match permit.unless_evicted(written).await {
            Some(written) => written??,
            None => return Ok(()),
        }
    }
}

enum Line {
    Text(Vec<u8>),
    /// Longer than the limit; read to its end, and forgotten.
    TooLong,
    End,
    Late,
    /// Others need the permit.
    Crowded,
}

/// A client may be idle for longer than a request may take once it has begun.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin), limits: &Limits) -> io::Result<Line> {
    if timeout(limits.idle, input.fill_buf()).await.is_err() {
        return Ok(Line::Late);
    }
    let line = timeout(limits.arrival, read_line(input, limits.request)).await;
    line.unwrap_or(Ok(Line::Late))
}

async fn read_line(input: &mut (impl AsyncBufRead + Unpin), limit: usize) -> io::Result<Line> {
    let mut text = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(Line::End);
        }
        let newline = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..newline.unwrap_or(chunk.len())];
        too_long |= text.len() + part.len() > limit;
        if !too_long {
            text.extend_from_slice(part);
        }
        let used = part.len() + usize::from(newline.is_some());
        input.consume(used);
        if newline.is_some() {
            return Ok(if too_long {
                Line::TooLong
            } else {
                Line::Text(text)
            });
        }
    }
}

fn line(answer: Result<Value, Error>) -> Vec<u8> {
    let answer = match answer {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": error }),
    };
    let mut text = answer.to_string().into_bytes();
    text.push(b'\n');
    text
}
