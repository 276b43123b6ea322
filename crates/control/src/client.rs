//! The other end of a control socket, for commands that ask a running program.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Error, Kind};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a [`crate::unix::Server`].
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Result(Value),
    Error(Error),
}

impl Client {
    /// Connects, or says that nothing is running there ([`Kind::Unreachable`]).
    pub fn connect(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let stream = open(&path).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    "nothing is running there; start it, or name its socket".into()
                }
                io::ErrorKind::PermissionDenied => {
                    "permission denied; run with sudo, or as a member of the group lowroad".into()
                }
                _ => error.to_string(),
            };
            unreachable(&path, remedy)
        })?;
        Ok(Self {
            path,
            stream: BufReader::new(stream),
        })
    }

    /// Sends one request and waits for its answer.
    pub fn call(&mut self, method: &str, params: impl Serialize) -> Result<Value, Error> {
        let mut request = serde_json::to_vec(&json!({ "method": method, "params": params }))
            .map_err(|error| Error::bad_request(error.to_string()))?;
        request.push(b'\n');
        let mut answer = String::new();
        self.stream
            .get_mut()
            .write_all(&request)
            .and_then(|()| self.stream.read_line(&mut answer))
            .map_err(|error| unreachable(&self.path, error))?;
        if answer.is_empty() {
            return Err(unreachable(&self.path, "closed the connection"));
        }
        match serde_json::from_str(&answer).map_err(|error| unreachable(&self.path, error))? {
            Answer::Result(result) => Ok(result),
            Answer::Error(error) => Err(error),
        }
    }
}

fn open(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn unreachable(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Unreachable, format!("{}: {why}", path.display()))
}
