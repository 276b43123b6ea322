//! A connection to a NATS server, as far as publishing with acknowledgements needs it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::sink::dial::dial;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Waiting for what is already there.
const AT_ONCE: Duration = Duration::from_millis(1);
/// A server that answers with longer lines is none.
const LONGEST_LINE: usize = 1 << 20;

/// Who asks, as the URL says it.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    Nobody,
    Token(String),
    User(String, String),
}

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    unread: Vec<u8>,
    inbox: String,
}

/// What the server said of a message.
#[derive(Debug)]
pub(super) struct Answer {
    /// The last part of the subject that it was sent to.
    pub(super) number: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Stored,
    /// Nobody takes the subject, or not now.
    NoStream,
    Refused(String),
}

/// What a server says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    headers: bool,
    tls_required: bool,
}

impl Link {
    /// Connects, and waits until the server has taken us in.
    pub(super) fn connect(server: &str, identity: &Identity, inbox: &str) -> io::Result<Self> {
        let stream = dial(server)?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        let mut link = Self {
            stream,
            unread: Vec::new(),
            inbox: inbox.to_owned(),
        };
        let info = link.line(CONNECT_TIMEOUT)?;
        let info = info
            .strip_prefix("INFO ")
            .ok_or_else(|| other("is no NATS server"))?;
        let info: Info = serde_json::from_str(info).map_err(io::Error::other)?;
        if info.tls_required {
            return Err(other(
                "asks for TLS; put a local server or a tunnel in front of it",
            ));
        }
        if !info.headers {
            return Err(other("knows no headers; it is older than 2.2"));
        }
        link.greet(identity)?;
        Ok(link)
    }

    fn greet(&mut self, identity: &Identity) -> io::Result<()> {
        let mut connect = json!({
            "verbose": false,
            "pedantic": false,
            "headers": true,
            "no_responders": true,
            "name": "lowroad",
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
        });
        match identity {
            Identity::Nobody => {}
            Identity::Token(token) => connect["auth_token"] = token.as_str().into(),
            Identity::User(user, password) => {
                connect["user"] = user.as_str().into();
                connect["pass"] = password.as_str().into();
            }
        }
        let inbox = &self.inbox;
        let greeting = format!("CONNECT {connect}\r\nSUB {inbox}.* 1\r\nPING\r\n");
        self.stream.write_all(greeting.as_bytes())?;
        loop {
            let line = self.line(CONNECT_TIMEOUT)?;
            match line.as_str() {
                "PONG" => return Ok(()),
                error if error.starts_with("-ERR") => return Err(other(error)),
                _ => {}
            }
        }
    }

    /// Sends a message to a subject; the answer will have this number.
    pub(super) fn publish(
        &mut self,
        subject: &str,
        number: u64,
        headers: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let (inbox, head) = (&self.inbox, headers.len());
        let all = head + body.len();
        let mut message =
            format!("HPUB {subject} {inbox}.{number} {head} {all}\r\n{headers}").into_bytes();
        message.extend(body);
        message.extend(b"\r\n");
        self.stream.write_all(&message)
    }

    /// The next answer, if one comes in time; without a time, if it is there.
    pub(super) fn answer(&mut self, wait: Option<Duration>) -> io::Result<Option<Answer>> {
        loop {
            let line = match self.line(wait.unwrap_or(AT_ONCE)) {
                Err(error) if is_timeout(&error) => return Ok(None),
                line => line?,
            };
            let mut words = line.split(' ');
            match words.next() {
                Some("PING") => self.stream.write_all(b"PONG\r\n")?,
                Some("-ERR") => return Err(complaint(&line)),
                Some("MSG" | "HMSG") => {
                    let number = words
                        .next()
                        .and_then(|subject| subject.rsplit('.').next()?.parse().ok());
                    let length = words.next_back().and_then(|length| length.parse().ok());
                    let (Some(number), Some(length)) = (number, length) else {
                        return Err(other(&line));
                    };
                    let body = self.body(length)?;
                    return Ok(Some(Answer {
                        number,
                        outcome: outcome(&body),
                    }));
                }
                _ => {}
            }
        }
    }

    /// The next line, without its end.
    fn line(&mut self, wait: Duration) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line = self.unread.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(io::Error::other);
            }
            if self.unread.len() > LONGEST_LINE {
                return Err(other("is no NATS server"));
            }
            self.fill(wait)?;
        }
    }

    fn body(&mut self, length: usize) -> io::Result<String> {
        if length > LONGEST_LINE {
            return Err(other("is no NATS server"));
        }
        while self.unread.len() < length + 2 {
            self.fill(CONNECT_TIMEOUT)?;
        }
        let body = self.unread.drain(..length + 2).take(length).collect();
        String::from_utf8(body).map_err(io::Error::other)
    }

    fn fill(&mut self, wait: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(wait))?;
        let mut bytes = [0; 16_384];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            read => {
                self.unread.extend(&bytes[..read]);
                Ok(())
            }
        }
    }
}

/// Headers instead of JSON say that nobody takes the subject.
fn outcome(body: &str) -> Outcome {
    #[derive(Deserialize)]
    struct Stored {
        error: Option<Refusal>,
    }
    #[derive(Deserialize)]
    struct Refusal {
        code: u16,
        description: String,
    }
    match serde_json::from_str::<Stored>(body) {
        Ok(Stored { error: None }) => Outcome::Stored,
        Ok(Stored { error: Some(error) }) if error.code != 503 => {
            Outcome::Refused(error.description)
        }
        _ => Outcome::NoStream,
    }
}

/// What another connection would meet as well, or the end of this one.
fn complaint(line: &str) -> io::Error {
    let lasting = ["Permissions Violation", "Maximum Payload", "Invalid"];
    if lasting.iter().any(|what| line.contains(what)) {
        return other(line);
    }
    io::Error::new(io::ErrorKind::ConnectionAborted, line.to_owned())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn other(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}
