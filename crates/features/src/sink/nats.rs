//! NATS JetStream: publishes a message for each row and keeps it until the server has stored it.
//!
//! At least once: messages without an acknowledgement are sent again over the next connection, under the same
//! message id. A stream drops such duplicates for two minutes, unless it is configured otherwise.

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use nats::{
    Client, Options, Refusal, parse_authority, parse_login, parse_response, unique_id,
    without_secrets,
};

use super::message::{Message, messages};
use super::{Error, Mode, Sink};

/// The interval between attempts to connect.
const RETRY: Duration = Duration::from_millis(250);
/// Without an acknowledgement for this long, the message or the connection counts as lost.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of messages in flight. More would only wait in the server.
const WINDOW: usize = 1024;
/// The maximum number of rows that wait for an unreachable server. A live run loses further rows.
const MAX_BACKLOG: usize = 16_384;

/// Publishes rows to a subject of a stream.
#[derive(Debug)]
pub struct NatsSink {
    options: Options,
    subject: String,
    mode: Mode,
    /// Distinguishes the message ids of this run.
    run: String,
    client: Option<Client>,
    last_attempt: Instant,
    /// Rows that are not stored yet, in order. The first `in_flight` have been sent.
    backlog: VecDeque<(u64, Message)>,
    in_flight: usize,
    next: u64,
    stored: u64,
    lost: u64,
}

/// The reason that rows cannot be published now.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error("not connected")]
    NotConnected,
    #[error("no stream takes this subject")]
    NoStream,
    /// A server that has just started may not have loaded its streams.
    #[error("the stream is not available")]
    StreamUnavailable,
    #[error("{0}")]
    Rejected(String),
    #[error("timed out")]
    Timeout,
}

impl NatsSink {
    /// Connects to `[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]…]/SUBJECT`. `login`, `USER:PASSWORD` or a token,
    /// takes precedence over the one in the address.
    ///
    /// # Errors
    /// [`Error::NoSubject`] for a bad address, [`Error::Io`] if no server can be reached.
    pub fn connect(address: &str, login: Option<&str>, mode: Mode) -> Result<Self, Error> {
        let invalid = || Error::NoSubject(without_secrets(address));
        let (authority, subject) = address.split_once('/').ok_or_else(invalid)?;
        let is_legal = |c: char| c.is_ascii_graphic() && c != '*' && c != '>';
        if subject.is_empty() || !subject.chars().all(is_legal) {
            return Err(invalid());
        }
        let (identity, servers) = parse_authority(authority);
        if servers.is_empty() {
            return Err(invalid());
        }
        let identity = login.map_or(identity, parse_login);
        let mut sink = Self {
            options: Options {
                servers,
                identity,
                tls: None,
                name: "lowroad".to_owned(),
                inbox: String::new(),
            },
            subject: subject.to_owned(),
            mode,
            run: unique_id(),
            client: None,
            last_attempt: Instant::now(),
            backlog: VecDeque::new(),
            in_flight: 0,
            next: 0,
            stored: 0,
            lost: 0,
        };
        let client = Client::connect(&sink.options);
        let client = client.map_err(|error| error_at(&sink.servers(), error.into()))?;
        sink.client = Some(client);
        Ok(sink)
    }

    fn servers(&self) -> String {
        self.options.servers.join(",")
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        for message in messages(batch)? {
            self.backlog.push_back((self.next, message));
            self.next += 1;
        }
        Ok(())
    }

    /// Sends messages up to the window, and handles the acknowledgements that have arrived.
    fn work(&mut self) -> Result<(), Failure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.reconnect()?,
        };
        match self.work_over(&mut client) {
            Ok(()) => {
                self.client = Some(client);
                Ok(())
            }
            Err(failure) => {
                tracing::warn!("{}: {failure}", client.server());
                self.in_flight = 0;
                Err(failure)
            }
        }
    }

    fn reconnect(&mut self) -> Result<Client, Failure> {
        if self.last_attempt.elapsed() < RETRY {
            return Err(Failure::NotConnected);
        }
        self.last_attempt = Instant::now();
        let client = Client::connect(&self.options)?;
        tracing::info!("{}: connected again", client.server());
        Ok(client)
    }

    fn work_over(&mut self, client: &mut Client) -> Result<(), Failure> {
        loop {
            while self.in_flight < WINDOW.min(self.backlog.len()) {
                self.publish(client);
            }
            let is_full = self.in_flight == WINDOW;
            let wait = if is_full { ACK_TIMEOUT } else { Duration::ZERO };
            match client.next(wait)? {
                Some(message) => self.acknowledge(&message)?,
                None if is_full => return Err(Failure::Timeout),
                None => return Ok(()),
            }
        }
    }

    fn publish(&mut self, client: &mut Client) {
        let (number, message) = &self.backlog[self.in_flight];
        let id = format!("{}-{number}", self.run);
        let mut headers = vec![("Nats-Msg-Id", id.as_str())];
        headers.extend(message.key.as_deref().map(|key| ("Flow-Id", key)));
        let reply = client.inbox(&number.to_string());
        client.publish(&self.subject, &reply, &headers, &message.body);
        self.in_flight += 1;
    }

    /// Handles the acknowledgement of a row, which is either stored or rejected permanently.
    fn acknowledge(&mut self, message: &nats::Message) -> Result<(), Failure> {
        let token = message.subject.rsplit('.').next();
        let number = token.and_then(|token| token.parse::<u64>().ok());
        let mut in_flight = self.backlog.iter().take(self.in_flight);
        let Some(at) = in_flight.position(|(known, _)| Some(*known) == number) else {
            return Ok(());
        };
        match parse_response(&message.body) {
            Ok(_) => self.stored += 1,
            Err(Some(nats::Error::JetStream {
                status,
                description,
                ..
            })) if status != 503 => {
                if self.mode == Mode::Whole {
                    return Err(Failure::Rejected(description));
                }
                tracing::debug!("{}: {description}", self.subject);
                self.lost += 1;
            }
            // No responders, or JetStream has no leader.
            Err(_) if self.stored > 0 => return Err(Failure::StreamUnavailable),
            Err(_) => return Err(Failure::NoStream),
        }
        self.backlog.remove(at);
        self.in_flight -= 1;
        Ok(())
    }

    /// Works until a condition holds, or for as long as the mode allows.
    fn work_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            let result = self.work();
            match &result {
                Ok(()) if is_done(self) => return Ok(()),
                Err(failure) if !failure.is_transient() => return result,
                _ => {}
            }
            if start.elapsed() > self.mode.delivery_timeout() {
                return result.and(Err(Failure::Timeout));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn give_up(&mut self, failure: Failure) -> Error {
        self.lost += u64::try_from(self.backlog.len()).unwrap_or(0);
        self.backlog.clear();
        error_at(&format!("{} {}", self.servers(), self.subject), failure)
    }
}

impl Sink for NatsSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if self.mode == Mode::Live && self.backlog.len() + batch.num_rows() > MAX_BACKLOG {
            // The newest rows are lost, because the backlog is sent in order.
            self.lost += u64::try_from(batch.num_rows()).unwrap_or(0);
        } else {
            self.add(batch)?;
        }
        match self.mode {
            Mode::Live => {
                let _ = self.work();
                Ok(())
            }
            Mode::Whole => self
                .work_until(|this| this.backlog.len() < WINDOW)
                .map_err(|failure| self.give_up(failure)),
        }
    }

    fn idle(&mut self) {
        let _ = self.work();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.work_until(|this| this.backlog.is_empty())
            .map_err(|failure| self.give_up(failure))
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

impl Failure {
    /// Whether another attempt may succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Nats(error) => error.is_transient(),
            Self::NotConnected | Self::StreamUnavailable | Self::Timeout => true,
            Self::NoStream | Self::Rejected(_) => false,
        }
    }
}

/// An error about a server, or about a server and a subject.
fn error_at(place: &str, failure: Failure) -> Error {
    let cause = match failure {
        Failure::Nats(nats::Error::Connection { source, .. }) => source,
        Failure::Nats(nats::Error::Refused {
            reason: Refusal::TlsRequired,
            ..
        }) => io::Error::other("asks for TLS; put a local server or a tunnel in front of it"),
        Failure::Nats(nats::Error::Refused { reason, .. }) => io::Error::other(reason),
        failure => io::Error::other(failure),
    };
    Error::address(place)(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for invalid in ["127.0.0.1:4222", "127.0.0.1:4222/", "h/a b", "h/flows.*"] {
            let error = NatsSink::connect(invalid, None, Mode::Whole).err();
            assert!(matches!(error, Some(Error::NoSubject(_))), "{invalid}");
        }
    }
}
