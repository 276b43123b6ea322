//! The client: a session with a server, and one test after the other.

mod concurrent;
mod run;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::Duration;

use datapath::{Classify, ErrorClass, Missing};
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use self::run::explain;
pub(crate) use self::run::{STACK, measure as measure_flows, measure_alone};
use crate::message::{
    Authenticator, Cookie, Fault, TimedStream, ToClient, ToServer, VERSION, greet, receive, send,
};
use crate::options::Plan;
use crate::outcome::{End, Interval, Outcome};
use crate::socket::{self, Source, path_mtu_to};
use crate::socket_options::tcp_statistics;
use crate::spec::{Invalid, Spec};
use crate::test::Test;
use crate::test::method::Method;
use crate::token::{CHALLENGE, Challenges, Role, Token};

/// A message of a server arrives completely within this.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a server's text that are printed: the server is not trusted.
const MAX_TEXT: usize = 200;

/// The progress of a test, for display.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The time since the window opened; none before.
    pub measured: Option<Duration>,
    /// Bytes and messages that this end has counted so far.
    pub bytes: u64,
    pub messages: u64,
    /// The last step of a search for a rate.
    pub step: Option<Step>,
    /// An interval that has just ended, if the spec asks for intervals.
    pub interval: Option<Interval>,
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
    #[error("no netbench server at {0}; start one there: lowroad netbench serve --listen {0}")]
    NoServer(SocketAddr),
    #[error("cannot resolve {host}: {cause}")]
    Resolve { host: String, cause: io::Error },
    #[error("{0} is not an address: write HOST or HOST:PORT")]
    Target(String),
    #[error("{0} is a link-local address: name its device as well, as fe80::1%eth0 does")]
    NoScope(String),
    #[error("{target}: this machine has no device {device}")]
    NoDevice { target: String, device: String },
    #[error("{0} is not a netbench server: start one there with `lowroad netbench serve`")]
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
    #[error(
        "{0} does not prove that it knows the token: it may be another server; start it with the same token, or leave the token out here"
    )]
    NotAuthenticated(String),
    #[error("{target} has no {family} address")]
    NoFamily {
        target: String,
        family: AddressFamily,
    },
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
            | Self::NoScope(_)
            | Self::NoDevice { .. }
            | Self::Stranger(_)
            | Self::Version { .. }
            | Self::Refused { .. }
            | Self::NoToken(_)
            | Self::NotAuthenticated(_)
            | Self::NoFamily { .. }
            | Self::Declined { later: false, .. } => ErrorClass::Input,
            Self::Missing { .. } => ErrorClass::Missing,
            Self::Unreachable { .. }
            | Self::Resolve { .. }
            | Self::NoServer(_)
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

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    V4,
    V6,
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A target, and how to reach it.
#[derive(Clone, Debug)]
pub struct Target {
    /// `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.
    pub name: String,
    pub token: Option<Token>,
    pub source: Source,
    /// None: the first address that answers.
    pub family: Option<AddressFamily>,
}

impl Target {
    /// Any address of this name, without a token.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            token: None,
            source: Source::default(),
            family: None,
        }
    }

    /// The addresses of the family.
    fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let mut all = resolve(&self.name)?;
        all.retain(|at| match self.family {
            Some(AddressFamily::V4) => at.is_ipv4(),
            Some(AddressFamily::V6) => at.is_ipv6(),
            None => true,
        });
        match self.family {
            Some(family) if all.is_empty() => Err(Error::NoFamily {
                target: self.name.clone(),
                family,
            }),
            _ => Ok(all),
        }
    }

    /// Opens a session.
    ///
    /// # Errors
    /// [`Error`]: no server, one that refuses this client, or one of another version.
    pub fn open(&self) -> Result<Session, Error> {
        let mut failed = Error::Target(self.name.clone());
        for at in self.addresses()? {
            match self.connect(at) {
                Ok(stream) => return Session::over(stream, at, self),
                Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {
                    failed = Error::NoServer(at);
                }
                Err(cause) => {
                    let target = at.to_string();
                    failed = Error::Unreachable { target, cause };
                }
            }
        }
        Err(failed)
    }

    fn connect(&self, at: SocketAddr) -> io::Result<TcpStream> {
        let domain = Domain::for_address(at);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        self.source.bind_address(&socket, at)?;
        socket.connect_timeout(&at.into(), MESSAGE_TIMEOUT)?;
        Ok(socket.into())
    }
}

/// Runs tests against a target, over one session for all tests that need a server.
#[derive(Debug)]
pub struct Client {
    target: Target,
    session: Option<Session>,
}

impl Client {
    /// Opens a session if one of the plans needs a server.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn new(target: Target, plans: &[Plan]) -> Result<Self, Error> {
        let serves = |plan: &Plan| plan.spec.test.needs_server();
        let session = match plans.iter().any(serves) {
            true => Some(target.open()?),
            false => None,
        };
        Ok(Self { target, session })
    }

    /// Runs a plan: one test, two in both directions at once, or one under the load of streams.
    ///
    /// # Errors
    /// [`Error`]: what prevents the test from starting.
    pub fn run(&mut self, plan: &Plan, watch: Watch<'_>) -> Result<Vec<Outcome>, Error> {
        if plan.bidirectional {
            return concurrent::both_directions(&self.target, &plan.spec, watch);
        }
        if let Some(load) = &plan.load {
            let outcome = concurrent::under_load(self, &plan.spec, load, watch)?;
            return Ok(vec![outcome]);
        }
        Ok(vec![self.measure(&plan.spec, watch)?])
    }

    fn measure(&mut self, spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
        spec.check()?;
        match (*spec.test.method(), &mut self.session) {
            (Method::Client(measure), None) => {
                let addresses = self.target.addresses()?;
                measure(&addresses, spec, &self.target.source, watch).map(explain)
            }
            (_, Some(session)) => session.measure(spec, watch),
            (_, none) => none.insert(self.target.open()?).measure(spec, watch),
        }
    }
}

/// A server that has admitted this client.
#[derive(Debug)]
pub struct Session {
    target: String,
    stream: TcpStream,
    peer: SocketAddr,
    source: Source,
    authenticator: Authenticator,
    /// The smaller of the MTUs that both ends know of the path, in bytes.
    path_mtu: Option<u32>,
    /// The longest test that the server runs.
    max_duration: Duration,
}

/// All addresses of a target, in the order in which to try them. A target is `HOST`, `HOST:PORT`, `ADDRESS` or
/// `[ADDRESS]:PORT`; a link-local address names its device as well, as `fe80::1%eth0` does.
///
/// # Errors
/// [`Error::Target`]; [`Error::Resolve`] for an unknown name.
pub fn resolve(target: &str) -> Result<Vec<SocketAddr>, Error> {
    let wrong = || Error::Target(target.to_owned());
    let host = host_and_port(target).ok_or_else(wrong)?;
    check_scope(target, host.0)?;
    let found = host.to_socket_addrs().map_err(|cause| match cause.kind() {
        io::ErrorKind::InvalidInput => wrong(),
        _ => Error::Resolve {
            host: host.0.to_owned(),
            cause,
        },
    })?;
    let found: Vec<_> = found.collect();
    match found.is_empty() {
        true => Err(wrong()),
        false => Ok(found),
    }
}

/// A link-local address needs a device that this machine has. A resolver would say so less clearly.
fn check_scope(target: &str, host: &str) -> Result<(), Error> {
    let (address, device) = match host.split_once('%') {
        Some((address, device)) => (address, Some(device)),
        None => (host, None),
    };
    let Ok(address) = address.parse::<Ipv6Addr>() else {
        return Ok(());
    };
    let target = target.to_owned();
    match device {
        Some(device) if device.parse::<u32>().is_err() && if_nametoindex(device).is_err() => {
            let device = device.to_owned();
            Err(Error::NoDevice { target, device })
        }
        None if address.is_unicast_link_local() => Err(Error::NoScope(target)),
        _ => Ok(()),
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
    if target.is_empty() || (target.starts_with(':') && !is_v6(target)) {
        return None;
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
        let target = Target {
            token: token.cloned(),
            ..Target::new(target)
        };
        target.open()
    }

    fn over(stream: TcpStream, at: SocketAddr, target: &Target) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        let mut session = Self {
            target: at.to_string(),
            stream,
            peer: at,
            source: target.source.clone(),
            authenticator: Authenticator::default(),
            path_mtu: path_mtu_to(at, &target.source).ok(),
            max_duration: Duration::ZERO,
        };
        session.hello(target.token.as_ref())?;
        Ok(session)
    }

    /// Exchanges greetings and authenticates, each end to the other.
    fn hello(&mut self, token: Option<&Token>) -> Result<(), Error> {
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
        let challenges = Challenges {
            server: bytes,
            client: socket::random::<CHALLENGE>()?,
        };
        let hello = ToServer::Hello {
            answer: token.map(|token| token.answer(Role::Client, &challenges)),
            challenge: challenges.client,
        };
        send(&mut server, &hello).map_err(lost)?;
        let target = self.target.clone();
        match receive::<ToClient>(&mut server).map_err(lost)? {
            ToClient::Admitted {
                answer,
                path_mtu,
                max_duration_us,
            } => {
                if let Some(token) = token {
                    let is_right = |answer| token.is_answer(Role::Server, &challenges, &answer);
                    if !answer.is_some_and(is_right) {
                        return Err(Error::NotAuthenticated(target));
                    }
                    let key = token.session_key(&challenges);
                    self.authenticator = Authenticator::new(Some(key));
                }
                self.path_mtu = [self.path_mtu, path_mtu].into_iter().flatten().min();
                self.max_duration = Duration::from_micros(max_duration_us);
                Ok(())
            }
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
        let measured = match *spec.test.method() {
            Method::Flows { client, .. } => measure_flows(self, spec, client, watch),
            Method::Search(search) => search(self, spec, watch),
            Method::Client(measure) => measure(&[self.peer], spec, &self.source, watch),
        };
        measured.map(explain)
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

    /// Opens the server's window.
    fn mark(&mut self, spec: &Spec) -> Result<(), Error> {
        self.send(&ToServer::Mark)?;
        if !spec.confirms_window() {
            return Ok(());
        }
        match self.receive()? {
            ToClient::Marked => Ok(()),
            _ => Err(self.fault(Fault::Unexpected)),
        }
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

    /// The round trip of the control connection, as TCP measures it; zero if it does not say.
    fn round_trip(&self) -> Duration {
        let tcp = tcp_statistics(&SockRef::from(&self.stream));
        let us = tcp.map_or(0, |tcp| tcp.rtt_us);
        Duration::from_micros(us.into())
    }

    /// Whether the server has closed the connection: it sends nothing while a test runs.
    fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn send(&mut self, message: &ToServer) -> Result<(), Error> {
        let mut stream = TimedStream::new(MESSAGE_TIMEOUT, &self.stream);
        let sent = self.authenticator.send(Role::Client, &mut stream, message);
        sent.map_err(|fault| self.fault(fault))
    }

    fn receive(&mut self) -> Result<ToClient, Error> {
        let mut stream = TimedStream::new(MESSAGE_TIMEOUT, &self.stream);
        let received = self.authenticator.receive(Role::Server, &mut stream);
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
    let mut client = Client {
        target: Target::new(target),
        session: None,
    };
    client.measure(spec, watch)
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
        for target in [
            "", ":80", "box:", "box:port", "a:b:1", "[box]:80", "[::1]80", "[::1",
        ] {
            assert_eq!(host_and_port(target), None, "{target}");
        }
        let found = resolve("[fe80::1%1]:80").unwrap();
        assert!(matches!(found[..], [SocketAddr::V6(at)] if at.scope_id() == 1));
        assert!(matches!(resolve("fe80::1"), Err(Error::NoScope(_))));
        assert!(matches!(
            resolve("[fe80::1%none]:80"),
            Err(Error::NoDevice { .. })
        ));
    }

    #[test]
    fn text_of_server_is_one_short_line() {
        let said = format!("\x1b[2J\x07no\r\n{}", "x".repeat(1000));
        let printed = printable(&said);
        assert!(printed.starts_with("[2Jnox") && printed.len() == MAX_TEXT);
    }
}
