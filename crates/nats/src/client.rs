//! A connection to one of several servers: messages out, messages in, questions with an answer.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::Error;
use crate::address::Identity;
use crate::link::{Link, TIMEOUT};
use crate::tls::Tls;
use crate::wire::{self, Info, Line, Message};

/// The subscription that answers come by.
const ANSWERS: u32 = 1;

/// How to get to the servers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `HOST:PORT` each.
    pub servers: Vec<String>,
    pub identity: Identity,
    /// None for a connection that anybody on the way can read.
    pub tls: Option<Tls>,
    /// By which the server's operator knows us.
    pub name: String,
}

/// A connection. After [`Error::Connection`] it is of no more use.
#[derive(Debug)]
pub struct Client {
    link: Link,
    server: String,
    info: Info,
    inbox: String,
    asked: u64,
    subscribed: u32,
    /// Messages that came while an answer was waited for.
    waiting: VecDeque<Message>,
}

impl Client {
    /// Tries the servers in their order, once each.
    ///
    /// # Errors
    /// [`Error::Refused`] if one of them was there but does not take us, otherwise
    /// [`Error::Connection`] with what the last one met.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let mut last = Error::Connection {
            server: "nats".to_owned(),
            source: io::Error::other("no server was named"),
        };
        for server in &options.servers {
            match Self::to(server, options) {
                Ok(client) => return Ok(client),
                Err(error) if matches!(last, Error::Refused { .. }) => drop(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn to(server: &str, options: &Options) -> Result<Self, Error> {
        let broken = |source| Error::Connection {
            server: server.to_owned(),
            source,
        };
        let mut client = Self {
            link: Link::dial(server).map_err(broken)?,
            server: server.to_owned(),
            info: Info::default(),
            inbox: format!("_INBOX.{}", unique()),
            asked: 0,
            subscribed: ANSWERS,
            waiting: VecDeque::new(),
        };
        let line = client.link.line(TIMEOUT).map_err(broken)?;
        let line = line.ok_or_else(|| broken(io::ErrorKind::TimedOut.into()))?;
        let info = match Line::parse(&line) {
            Some(Line::Info(info)) => info,
            Some(Line::Error(what)) => return Err(client.complaint(what)),
            _ => return Err(client.refused("it is no NATS server")),
        };
        client.info = serde_json::from_str(info)
            .map_err(|_| client.refused("what it says of itself cannot be read"))?;
        client.agree(options)?.greet(options)
    }

    /// Encrypts the connection if that is asked for, by either side.
    fn agree(self, options: &Options) -> Result<Self, Error> {
        match &options.tls {
            None if self.info.tls_required => Err(self.refused("it asks for TLS")),
            None => Ok(self),
            Some(_) if !self.info.tls_required && !self.info.tls_available => {
                Err(self.refused("it has no TLS"))
            }
            Some(tls) => {
                let Self { link, server, .. } = self;
                match link.secure(&server, tls) {
                    Ok(link) => Ok(Self {
                        link,
                        server,
                        ..self
                    }),
                    // A certificate does not become another one by itself.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        let what = error.to_string();
                        Err(Error::Refused { server, what })
                    }
                    Err(source) => Err(Error::Connection { server, source }),
                }
            }
        }
    }

    fn greet(mut self, options: &Options) -> Result<Self, Error> {
        if !self.info.headers {
            return Err(self.refused("it knows no headers: it is older than 2.2"));
        }
        let mut connect = json!({
            "verbose": false,
            "pedantic": false,
            "headers": true,
            "no_responders": true,
            "name": options.name,
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
        });
        match &options.identity {
            Identity::Nobody => {}
            Identity::Token(token) => connect["auth_token"] = token.as_str().into(),
            Identity::User(user, password) => {
                connect["user"] = user.as_str().into();
                connect["pass"] = password.as_str().into();
            }
            Identity::Key(credentials) => {
                let nonce = self.info.nonce.as_deref();
                let said = nonce.and_then(|nonce| credentials.answer(nonce));
                let said = said.ok_or_else(|| self.refused("it does not ask for a key"))?;
                for (name, value) in said {
                    connect[name] = value.into();
                }
            }
        }
        let inbox = &self.inbox;
        let greeting = format!("CONNECT {connect}\r\nSUB {inbox}.* {ANSWERS}\r\nPING\r\n");
        self.link.unsent.extend(greeting.bytes());
        self.send()?;
        loop {
            match self
                .link
                .line(TIMEOUT)
                .map_err(|source| self.broken(source))?
            {
                None => return Err(self.broken(io::ErrorKind::TimedOut.into())),
                Some(line) if line == "PONG" => return Ok(self),
                Some(line) => {
                    if let Some(Line::Error(what)) = Line::parse(&line) {
                        return Err(self.complaint(what));
                    }
                }
            }
        }
    }

    /// The server that we are connected to.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The other servers of its cluster, as it knows them.
    pub fn others(&self) -> &[String] {
        &self.info.connect_urls
    }

    /// The longest message that the server takes, in bytes, headers included.
    pub fn max_payload(&self) -> usize {
        self.info.max_payload
    }

    /// A subject at which nobody else listens, with this as its last word. What comes there comes by
    /// [`Self::next`].
    pub fn inbox(&self, last: &str) -> String {
        format!("{}.{last}", self.inbox)
    }

    /// One that has to be subscribed to.
    pub(crate) fn new_inbox(&mut self) -> String {
        self.asked += 1;
        format!("{}.s.{}", self.inbox, self.asked)
    }

    /// Messages to the subject come by [`Self::next`] from now on, under the number that it returns.
    ///
    /// # Errors
    /// [`Error::Connection`]; that we may not is said later.
    pub fn subscribe(&mut self, subject: &str) -> Result<u32, Error> {
        self.subscribed += 1;
        let line = format!("SUB {subject} {}\r\n", self.subscribed);
        self.link.unsent.extend(line.bytes());
        self.send()?;
        Ok(self.subscribed)
    }

    /// Ends a subscription, with the next [`Self::send`].
    pub fn unsubscribe(&mut self, subscription: u32) {
        let line = format!("UNSUB {subscription}\r\n");
        self.link.unsent.extend(line.bytes());
    }

    /// Sends a message with the next [`Self::send`], or when something is waited for.
    pub fn publish(&mut self, subject: &str, reply: &str, headers: &[(&str, &str)], body: &[u8]) {
        wire::put(&mut self.link.unsent, subject, reply, headers, body);
    }

    /// # Errors
    /// [`Error::Connection`].
    pub fn send(&mut self) -> Result<(), Error> {
        self.link.send().map_err(|source| self.broken(source))
    }

    /// The next message; none if none comes in time.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Refused`].
    pub fn next(&mut self, wait: Duration) -> Result<Option<Message>, Error> {
        match self.waiting.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.arriving(wait),
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Also [`Error::Nobody`], [`Error::Late`].
    pub fn ask(&mut self, subject: &str, body: &[u8], wait: Duration) -> Result<Message, Error> {
        self.asked += 1;
        let reply = format!("{}.q{}", self.inbox, self.asked);
        self.publish(subject, &reply, &[], body);
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.arriving(left)? {
                Some(message) if message.subject == reply => {
                    if message.status() == Some(503) {
                        return Err(Error::Nobody(subject.to_owned()));
                    }
                    return Ok(message);
                }
                Some(message) => self.waiting.push_back(message),
                None => return Err(Error::Late(subject.to_owned())),
            }
        }
    }

    fn arriving(&mut self, wait: Duration) -> Result<Option<Message>, Error> {
        self.send()?;
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.link.line(left).map_err(|source| self.broken(source))?;
            let Some(line) = line else {
                return Ok(None);
            };
            match Line::parse(&line) {
                Some(Line::Ping) => {
                    self.link.unsent.extend(b"PONG\r\n");
                    self.send()?;
                }
                Some(Line::Info(info)) => {
                    if let Ok(info) = serde_json::from_str(info) {
                        self.info = info;
                    }
                }
                Some(Line::Error(what)) => return Err(self.complaint(what)),
                Some(Line::Message {
                    subscription,
                    subject,
                    reply,
                    head,
                    all,
                }) => {
                    let (headers, body) = self
                        .content(head, all)
                        .map_err(|source| self.broken(source))?;
                    return Ok(Some(Message {
                        subscription,
                        subject: subject.to_owned(),
                        reply: reply.map(str::to_owned),
                        headers,
                        body,
                    }));
                }
                Some(Line::Other) => {}
                None => return Err(self.refused("it is no NATS server")),
            }
        }
    }

    fn content(&mut self, head: usize, all: usize) -> io::Result<(String, Vec<u8>)> {
        let mut headers = self.link.body(all)?;
        let body = headers.split_off(head);
        Ok((String::from_utf8(headers).map_err(io::Error::other)?, body))
    }

    /// What another connection would meet as well, or the end of this one: there may be room for it later.
    fn complaint(&self, what: &str) -> Error {
        let lasting = [
            "Permissions Violation",
            "Maximum Payload",
            "Invalid",
            "Authorization",
            // The port is for servers, or for leaf nodes.
            "attempted to connect",
        ];
        if lasting.iter().any(|lasting| what.contains(lasting)) {
            return self.refused(what);
        }
        self.broken(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            what.to_owned(),
        ))
    }

    fn broken(&self, source: io::Error) -> Error {
        Error::Connection {
            server: self.server.clone(),
            source,
        }
    }

    fn refused(&self, what: &str) -> Error {
        Error::Refused {
            server: self.server.clone(),
            what: what.to_owned(),
        }
    }
}

/// Readable when something has arrived that was not taken yet: ask [`Client::next`] until it has nothing
/// before waiting for it.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Differs from every other connection's: a server cannot be made to answer another's questions.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
    let count = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    format!("{now:x}-{:x}-{count:x}", std::process::id())
}
