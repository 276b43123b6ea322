//! The client: a session with a server, and one test after the other.

mod run;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::Duration;

use datapath::{Classify, ErrorClass, Missing};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub(crate) use self::run::measure as measure_flows;
use crate::message::{
    Cookie, Fault, TimedStream, ToClient, ToServer, VERSION, greet, receive, send,
};
use crate::outcome::{End, Outcome};
use crate::spec::{Invalid, Spec};
use crate::test::Test;
use crate::test::method::Method;
use crate::token::Token;

/// A message of a server arrives completely within this.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a server's text that are printed: the server is not trusted.
const MAX_TEXT: usize = 200;

/// The progress of a test, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// The time since the window opened; none before.
    pub measured: Option<Duration>,
    /// Bytes and messages that this end has counted so far.
    pub bytes: u64,
    pub messages: u64,
    /// The last step of a search for a rate.
    pub step: Option<Step>,
}

/// A finished step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub number: u32,
    /// Datagrams a second.
    pub rate: f64,
    /// The share of them that was lost.
    pub loss: f64,
}

/// Receives the progress, and decides whether the test continues.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> ControlFlow<()>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("{target}: {cause}")]
    Unreachable { target: String, cause: io::Error },
    #[error("{0} is no address: write HOST or HOST:PORT")]
    Target(String),
    #[error("{0} is no netbench server: start one there with `lowroad netbench serve`")]
    Stranger(String),
    #[error(
        "{target} speaks version {theirs} of the protocol, this is version {VERSION}: use the same lowroad at both ends"
    )]
    Version { target: String, theirs: u16 },
    #[error("{target} refuses this client: {why}")]
    Refused { target: String, why: String },
    #[error("{target} has no room for this client: {why}; try again later")]
    Busy { target: String, why: String },
    #[error("{0} asks for a token: name its file")]
    NoToken(String),
    #[error("{target} declines {test}: {why}")]
    Declined {
        target: String,
        test: Test,
        why: String,
        /// Another try may succeed.
        later: bool,
    },
    #[error("{target} is gone: {cause}")]
    Lost { target: String, cause: String },
    #[error("icmp to {target}: {cause}")]
    Icmp { target: IpAddr, cause: io::Error },
    /// This machine cannot run the test; with the remedy.
    #[error("{what}; {remedy}")]
    Missing {
        what: &'static str,
        remedy: &'static str,
    },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid(_)
            | Self::Target(_)
            | Self::Stranger(_)
            | Self::Version { .. }
            | Self::Refused { .. }
            | Self::NoToken(_)
            | Self::Declined { later: false, .. } => ErrorClass::Input,
            Self::Missing { .. } => ErrorClass::Missing,
            Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Lost { .. }
            | Self::Declined { later: true, .. }
            | Self::Icmp { .. }
            | Self::Io(_) => ErrorClass::Failed,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match *self {
            Self::Missing { what, remedy } => vec![(String::new(), Missing::new(what, remedy))],
            _ => Vec::new(),
        }
    }
}

/// A server that has admitted this client.
#[derive(Debug)]
pub struct Session {
    target: String,
    stream: TcpStream,
    peer: SocketAddr,
}

/// All addresses of a target, in the order in which to try them. A target is `HOST`, `HOST:PORT`, `ADDRESS` or
/// `[ADDRESS]:PORT`; a link-local address names its device as well, as `fe80::1%eth0` does.
///
/// # Errors
/// [`Error::Target`]; [`Error::Unreachable`] for an unknown name.
pub fn resolve(target: &str) -> Result<Vec<SocketAddr>, Error> {
    let wrong = || Error::Target(target.to_owned());
    let host = host_and_port(target).ok_or_else(wrong)?;
    let found = host.to_socket_addrs().map_err(|cause| match cause.kind() {
        io::ErrorKind::InvalidInput => wrong(),
        _ => Error::Unreachable {
            target: target.to_owned(),
            cause,
        },
    })?;
    let found: Vec<_> = found.collect();
    match found.is_empty() {
        true => Err(wrong()),
        false => Ok(found),
    }
}

fn host_and_port(target: &str) -> Option<(&str, u16)> {
    if let Some(rest) = target.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port = match port {
            "" => crate::PORT,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        return is_v6(address).then_some((address, port));
    }
    match target.split_once(':') {
        None => Some((target, crate::PORT)),
        Some(_) if is_v6(target) => Some((target, crate::PORT)),
        Some((host, port)) => Some((host, port.parse().ok()?)),
    }
}

/// Whether it is an IPv6 address, perhaps with a device.
fn is_v6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

/// A server's text on one short line.
fn printable(text: &str) -> String {
    let characters = text.chars().filter(|character| !character.is_control());
    characters.take(MAX_TEXT).collect()
}

impl Session {
    /// Connects to the first address that answers, and authenticates.
    ///
    /// # Errors
    /// [`Error`]: no server, one that refuses this client, or one of another version.
    pub fn open(target: &str, token: Option<&Token>) -> Result<Self, Error> {
        let mut failed = Error::Target(target.to_owned());
        for at in resolve(target)? {
            match TcpStream::connect_timeout(&at, MESSAGE_TIMEOUT) {
                Ok(stream) => return Self::over(stream, at, token),
                Err(cause) => {
                    let target = at.to_string();
                    failed = Error::Unreachable { target, cause };
                }
            }
        }
        Err(failed)
    }

    fn over(stream: TcpStream, at: SocketAddr, token: Option<&Token>) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        let session = Self {
            target: at.to_string(),
            stream,
            peer: at,
        };
        session.hello(token)?;
        Ok(session)
    }

    /// Exchanges greetings and authenticates.
    fn hello(&self, token: Option<&Token>) -> Result<(), Error> {
        let mut server = TimedStream::new(MESSAGE_TIMEOUT, &self.stream);
        let lost = |fault| self.fault(fault);
        greet(&mut server).map_err(lost)?;
        let ToClient::Challenge {
            bytes,
            token: wanted,
        } = receive(&mut server).map_err(lost)?
        else {
            return Err(self.fault(Fault::Unexpected));
        };
        if wanted && token.is_none() {
            return Err(Error::NoToken(self.target.clone()));
        }
        let answer = token.map(|token| token.answer(&bytes));
        send(&mut server, &ToServer::Hello { answer }).map_err(lost)?;
        let target = self.target.clone();
        match receive::<ToClient>(&mut server).map_err(lost)? {
            ToClient::Admitted => Ok(()),
            ToClient::Refused { why, later } => {
                let why = printable(&why);
                Err(match later {
                    true => Error::Busy { target, why },
                    false => Error::Refused { target, why },
                })
            }
            _ => Err(self.fault(Fault::Unexpected)),
        }
    }

    /// Runs one test. If the server dies or the watch stops the test, the outcome has what was measured until then.
    ///
    /// # Errors
    /// [`Error`]: what prevents the test from starting.
    pub fn measure(&mut self, spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
        spec.check()?;
        match *spec.test.method() {
            Method::Flows { client, .. } => measure_flows(self, spec, client, watch),
            Method::Search(search) => search(self, spec, watch),
            Method::Client(measure) => measure(&[self.peer], spec, watch),
        }
    }

    /// Asks for a test: the addresses of its flows, and the cookie that they show there.
    fn begin(&mut self, spec: &Spec) -> Result<(Vec<SocketAddr>, Cookie), Error> {
        self.send(&ToServer::Begin(spec.clone()))?;
        match self.receive()? {
            ToClient::Ready { ports, cookie } => {
                let flow = |port| {
                    let mut to = self.peer;
                    to.set_port(port);
                    to
                };
                Ok((ports.into_iter().map(flow).collect(), cookie))
            }
            ToClient::Declined { why, later } => Err(Error::Declined {
                target: self.target.clone(),
                test: spec.test,
                why: printable(&why),
                later,
            }),
            _ => Err(self.fault(Fault::Unexpected)),
        }
    }

    fn mark(&mut self) -> Result<(), Error> {
        self.send(&ToServer::Mark)
    }

    /// Ends a test: what the server counted, and the error that ended a flow there early.
    fn end(&mut self, bytes: u64) -> Result<(End, Option<String>), Error> {
        self.send(&ToServer::End { bytes })?;
        match self.receive()? {
            ToClient::Ended { end, fault } => {
                let fault = fault.map(|fault| format!("{}: {}", self.target, printable(&fault)));
                Ok((end, fault))
            }
            _ => Err(self.fault(Fault::Unexpected)),
        }
    }

    /// Whether the server has closed the connection: it sends nothing while a test runs.
    fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn send(&mut self, message: &ToServer) -> Result<(), Error> {
        let sent = send(
            &mut TimedStream::new(MESSAGE_TIMEOUT, &self.stream),
            message,
        );
        sent.map_err(|fault| self.fault(fault))
    }

    fn receive(&mut self) -> Result<ToClient, Error> {
        let received = receive(&mut TimedStream::new(MESSAGE_TIMEOUT, &self.stream));
        received.map_err(|fault| self.fault(fault))
    }

    fn fault(&self, fault: Fault) -> Error {
        let target = self.target.clone();
        match fault {
            Fault::Stranger => Error::Stranger(target),
            Fault::Version(theirs) => Error::Version { target, theirs },
            fault => Error::Lost {
                target,
                cause: printable(&fault.to_string()),
            },
        }
    }
}

/// Runs one test without a session; if the test needs a server, it opens one, without a token.
///
/// # Errors
/// As [`Session::open`] and [`Session::measure`].
pub fn measure(target: &str, spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
    spec.check()?;
    match *spec.test.method() {
        Method::Client(measure) => measure(&resolve(target)?, spec, watch),
        Method::Flows { .. } | Method::Search(_) => {
            Session::open(target, None)?.measure(spec, watch)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn target_is_host_and_port() {
        for (target, host, port) in [
            ("box", "box", 7411),
            ("box:80", "box", 80),
            ("192.0.2.1:80", "192.0.2.1", 80),
            ("2001:db8::1", "2001:db8::1", 7411),
            ("[2001:db8::1]", "2001:db8::1", 7411),
            ("[2001:db8::1]:80", "2001:db8::1", 80),
            ("fe80::1%eth0", "fe80::1%eth0", 7411),
            ("[fe80::1%2]:80", "fe80::1%2", 80),
        ] {
            assert_eq!(host_and_port(target), Some((host, port)), "{target}");
        }
        for target in ["box:", "box:port", "a:b:1", "[box]:80", "[::1]80", "[::1"] {
            assert_eq!(host_and_port(target), None, "{target}");
        }
        let found = resolve("[fe80::1%1]:80").unwrap();
        assert!(matches!(found[..], [SocketAddr::V6(at)] if at.scope_id() == 1));
    }

    #[test]
    fn text_of_server_is_one_short_line() {
        let said = format!("\x1b[2J\x07no\r\n{}", "x".repeat(1000));
        let printed = printable(&said);
        assert!(printed.starts_with("[2Jnox") && printed.len() == MAX_TEXT);
    }
}
