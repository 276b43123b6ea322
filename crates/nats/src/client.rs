//! A connection to one of several servers: publish, subscribe, request.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;

use crate::address::Identity;
use crate::link::{Link, TIMEOUT};
use crate::tls::Tls;
use crate::wire::{self, Info, Line, Message};
use crate::{Error, Refusal};

/// The subscription that replies arrive on.
const REPLIES: u32 = 1;

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `HOST:PORT` each.
    pub servers: Vec<String>,
    pub identity: Identity,
    /// None for a connection in the clear.
    pub tls: Option<Tls>,
    /// The client's name, which a server shows to its operator.
    pub name: String,
    /// What inboxes begin with, so that an operator can permit this client's alone; `_INBOX` if empty.
    pub inbox: String,
}

/// A connection. After [`Error::Connection`] it cannot be used any more.
#[derive(Debug)]
pub struct Client {
    link: Link,
    server: String,
    info: Info,
    inbox: String,
    requests: u64,
    subscriptions: u32,
    /// Messages that arrived during a request.
    pending: VecDeque<Message>,
}

impl Client {
    /// Tries each server once, in order.
    ///
    /// # Errors
    /// [`Error::Refused`] if a server refuses the client, otherwise the last server's [`Error::Connection`].
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let mut last = Error::Connection {
            server: "nats".to_owned(),
            source: io::Error::other("no server was named"),
        };
        for server in &options.servers {
            match Self::open(server, options) {
                Ok(client) => return Ok(client),
                Err(error) if last.is_transient() => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    fn open(server: &str, options: &Options) -> Result<Self, Error> {
        let connection_error = |source| Error::Connection {
            server: server.to_owned(),
            source,
        };
        let mut client = Self {
            link: Link::dial(server).map_err(connection_error)?,
            server: server.to_owned(),
            info: Info::default(),
            inbox: inbox(&options.inbox).map_err(connection_error)?,
            requests: 0,
            subscriptions: REPLIES,
            pending: VecDeque::new(),
        };
        let line = client.link.read_line(TIMEOUT).map_err(connection_error)?;
        let line = line.ok_or_else(|| connection_error(io::ErrorKind::TimedOut.into()))?;
        let info = match Line::parse(&line) {
            Some(Line::Info(info)) => info,
            Some(Line::Error(what)) => return Err(client.server_error(what)),
            _ => return Err(client.refusal("its messages are not those of a NATS server")),
        };
        client.info = serde_json::from_str(info)
            .map_err(|_| client.refusal("its INFO message cannot be read"))?;
        client.negotiate_tls(options)?.log_in(options)
    }

    /// Starts TLS if the options have it; an error where client and server disagree.
    fn negotiate_tls(self, options: &Options) -> Result<Self, Error> {
        match &options.tls {
            None if self.info.tls_required => Err(Error::Refused {
                server: self.server,
                reason: Refusal::TlsRequired,
            }),
            None => Ok(self),
            Some(_) if !self.info.tls_required && !self.info.tls_available => {
                Err(self.refusal("it has no TLS"))
            }
            Some(tls) => {
                let Self { link, server, .. } = self;
                match link.start_tls(&server, tls) {
                    Ok(link) => Ok(Self {
                        link,
                        server,
                        ..self
                    }),
                    // A bad certificate stays bad.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        let reason = Refusal::Other(error.to_string());
                        Err(Error::Refused { server, reason })
                    }
                    Err(source) => Err(Error::Connection { server, source }),
                }
            }
        }
    }

    fn log_in(mut self, options: &Options) -> Result<Self, Error> {
        if !self.info.headers {
            return Err(self.refusal("it has no headers: servers have them from version 2.2 on"));
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
            Identity::Anonymous => {}
            Identity::Token(token) => connect["auth_token"] = token.as_str().into(),
            Identity::User(user, password) => {
                connect["user"] = user.as_str().into();
                connect["pass"] = password.as_str().into();
            }
            Identity::Key(credentials) => {
                let nonce = self.info.nonce.as_deref();
                let fields = nonce.and_then(|nonce| credentials.sign(nonce));
                let fields = fields.ok_or_else(|| self.refusal("it does not ask for a key"))?;
                for (name, value) in fields {
                    connect[name] = value.into();
                }
            }
        }
        let inbox = &self.inbox;
        let lines = format!("CONNECT {connect}\r\nSUB {inbox}.* {REPLIES}\r\nPING\r\n");
        self.link.output.extend(lines.bytes());
        self.flush()?;
        loop {
            match self.read_line(TIMEOUT)? {
                None => return Err(self.connection_error(io::ErrorKind::TimedOut.into())),
                Some(line) if line == "PONG" => return Ok(self),
                Some(line) => {
                    if let Some(Line::Error(what)) = Line::parse(&line) {
                        return Err(self.server_error(what));
                    }
                }
            }
        }
    }

    /// The server of this connection, as `HOST:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The servers of the cluster, as this server knows them.
    pub fn cluster_servers(&self) -> &[String] {
        &self.info.connect_urls
    }

    /// The largest message that the server accepts, in bytes, headers included.
    pub fn max_payload(&self) -> usize {
        self.info.max_payload
    }

    /// A reply subject of this connection with a last token. Its messages arrive through [`Self::next`].
    pub fn inbox(&self, token: &str) -> String {
        format!("{}.{token}", self.inbox)
    }

    /// A subject of this connection that has no subscription yet.
    pub(crate) fn new_inbox(&mut self) -> String {
        self.requests += 1;
        format!("{}.s.{}", self.inbox, self.requests)
    }

    /// Subscribes to a subject: its messages arrive through [`Self::next`] with the number that this returns.
    ///
    /// # Errors
    /// [`Error::Connection`]. The server reports a missing permission later.
    pub fn subscribe(&mut self, subject: &str) -> Result<u32, Error> {
        self.subscriptions += 1;
        let line = format!("SUB {subject} {}\r\n", self.subscriptions);
        self.link.output.extend(line.bytes());
        self.flush()?;
        Ok(self.subscriptions)
    }

    /// Ends a subscription, with the next [`Self::flush`].
    pub fn unsubscribe(&mut self, subscription: u32) {
        let line = format!("UNSUB {subscription}\r\n");
        self.link.output.extend(line.bytes());
    }

    /// Buffers a message, which the next [`Self::flush`], [`Self::next`] or [`Self::request`] sends. Messages may be
    /// in flight together: an [`Self::inbox`] for each as its `reply` tells their acknowledgements apart.
    pub fn publish(&mut self, subject: &str, reply: &str, headers: &[(&str, &str)], body: &[u8]) {
        wire::encode(&mut self.link.output, subject, reply, headers, body);
    }

    /// Sends what is buffered.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn flush(&mut self) -> Result<(), Error> {
        let sent = self.link.flush();
        sent.map_err(|source| self.connection_error(source))
    }

    /// Waits for the next message; none if none arrives in time.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Refused`].
    pub fn next(&mut self, wait: Duration) -> Result<Option<Message>, Error> {
        match self.pending.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.receive(wait),
        }
    }

    /// Sends a request, and waits for its reply.
    ///
    /// # Errors
    /// Those of [`Self::next`], [`Error::NoResponders`], [`Error::Timeout`].
    pub fn request(
        &mut self,
        subject: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Message, Error> {
        self.requests += 1;
        let reply = format!("{}.q{}", self.inbox, self.requests);
        self.publish(subject, &reply, &[], body);
        let deadline = Instant::now() + timeout;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.receive(rest)? {
                Some(message) if message.subject == reply => {
                    if message.status() == Some(503) {
                        return Err(Error::NoResponders(subject.to_owned()));
                    }
                    return Ok(message);
                }
                Some(message) => self.pending.push_back(message),
                None => return Err(Error::Timeout(subject.to_owned())),
            }
        }
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Message>, Error> {
        self.flush()?;
        let deadline = Instant::now() + wait;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let Some(line) = self.read_line(rest)? else {
                return Ok(None);
            };
            match Line::parse(&line) {
                Some(Line::Ping) => {
                    self.link.output.extend(b"PONG\r\n");
                    self.flush()?;
                }
                Some(Line::Info(info)) => {
                    if let Ok(info) = serde_json::from_str(info) {
                        self.info = info;
                    }
                }
                Some(Line::Error(what)) => return Err(self.server_error(what)),
                Some(Line::Message {
                    subscription,
                    subject,
                    reply,
                    header_length,
                    total_length,
                }) => {
                    let (headers, body) = self
                        .read_content(header_length, total_length)
                        .map_err(|source| self.connection_error(source))?;
                    return Ok(Some(Message {
                        subscription,
                        subject: subject.to_owned(),
                        reply: reply.map(str::to_owned),
                        headers,
                        body,
                    }));
                }
                Some(Line::Other) => {}
                None => return Err(self.refusal("its messages are not those of a NATS server")),
            }
        }
    }

    fn read_line(&mut self, wait: Duration) -> Result<Option<String>, Error> {
        let line = self.link.read_line(wait);
        line.map_err(|source| self.connection_error(source))
    }

    fn read_content(
        &mut self,
        header_length: usize,
        total_length: usize,
    ) -> io::Result<(String, Vec<u8>)> {
        let mut headers = self.link.read_body(total_length)?;
        let body = headers.split_off(header_length);
        // Others may have sent it.
        Ok((String::from_utf8_lossy(&headers).into_owned(), body))
    }

    /// A server's `-ERR`. Some would meet the next connection as well; others, such as too many connections, may
    /// pass.
    fn server_error(&self, what: &str) -> Error {
        let permanent = [
            "Permissions Violation",
            "Maximum Payload",
            "Invalid",
            "Authorization",
            // The port of routes between servers, or of leaf nodes.
            "attempted to connect",
        ];
        if permanent.iter().any(|error| what.contains(error)) {
            return self.refusal(what);
        }
        self.connection_error(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            what.to_owned(),
        ))
    }

    fn connection_error(&self, source: io::Error) -> Error {
        Error::Connection {
            server: self.server.clone(),
            source,
        }
    }

    fn refusal(&self, what: &str) -> Error {
        Error::Refused {
            server: self.server.clone(),
            reason: Refusal::Other(what.to_owned()),
        }
    }
}

/// Readable when a message arrives. Messages may be buffered already, so call [`Client::next`] until it returns none
/// before waiting for the descriptor.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Nobody else can know it: what arrives there is taken for an answer.
fn inbox(prefix: &str) -> io::Result<String> {
    let mut token = [0; 16];
    let drawn = SystemRandom::new().fill(&mut token);
    drawn.map_err(|_| io::Error::other("there are no random numbers"))?;
    let prefix = if prefix.is_empty() { "_INBOX" } else { prefix };
    let token = u128::from_ne_bytes(token);
    Ok(format!("{prefix}.{token:032x}"))
}

/// An identifier that no other call returns, in this process or another.
pub fn unique_id() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    format!("{now:x}-{:x}-{count:x}", std::process::id())
}
