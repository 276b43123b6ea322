//! The end that asks: a session with a server, and one test after the other.

mod icmp;
mod rate;
mod run;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::message::{Cookie, Fault, ToClient, ToServer, VERSION, Within, greet, hear, say};
use crate::outcome::{End, Outcome};
use crate::spec::{Invalid, Spec, Test};
use crate::token::Token;

pub use rate::{MOST_LOSS, Step};

/// A server says what it has to say within this, all of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many characters of what a server says are passed on: nobody knows what it is.
const LONGEST_WORD: usize = 200;

/// How far a test is, for who shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since the window was opened; none before.
    pub measured: Option<Duration>,
    /// By this end so far.
    pub bytes: u64,
    pub messages: u64,
    /// Of a search for a rate: what was tried last.
    pub step: Option<Step>,
}

/// Is told how far it is, and says whether to go on.
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
        /// It may be done on another try.
        later: bool,
    },
    #[error("{target} is gone: {cause}")]
    Lost { target: String, cause: String },
    #[error("icmp to {target}: {cause}")]
    Icmp { target: IpAddr, cause: io::Error },
    /// This machine cannot do it; with what helps.
    #[error("{what}; {remedy}")]
    Missing {
        what: &'static str,
        remedy: &'static str,
    },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// Whether no retry can make it work: what was asked for is wrong, or asked of the wrong one.
    pub fn asked_wrong(&self) -> bool {
        match self {
            Self::Invalid(_)
            | Self::Target(_)
            | Self::Stranger(_)
            | Self::Version { .. }
            | Self::Refused { .. }
            | Self::NoToken(_)
            | Self::Declined { later: false, .. } => true,
            Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Lost { .. }
            | Self::Declined { later: true, .. }
            | Self::Icmp { .. }
            | Self::Missing { .. }
            | Self::Io(_) => false,
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

/// Where a target is: `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`; a link-local address names its device as
/// well, as `fe80::1%eth0` does. All that a name stands for, in the order in which to try them.
///
/// # Errors
/// [`Error::Target`], [`Error::Unreachable`] for a name that nobody knows.
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

/// Whether it is an address of IPv6, of some device maybe.
fn is_v6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

/// What a server has said, as one may print it.
fn printable(said: &str) -> String {
    let said = said.chars().filter(|character| !character.is_control());
    said.take(LONGEST_WORD).collect()
}

impl Session {
    /// # Errors
    /// [`Error`] says why there is none.
    pub fn open(target: &str, token: Option<&Token>) -> Result<Self, Error> {
        let mut failed = Error::Target(target.to_owned());
        for at in resolve(target)? {
            match TcpStream::connect_timeout(&at, PATIENCE) {
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

    /// From the greeting until it is admitted.
    fn hello(&self, token: Option<&Token>) -> Result<(), Error> {
        let mut server = Within::new(PATIENCE, &self.stream);
        let lost = |fault| self.fault(fault);
        greet(&mut server).map_err(lost)?;
        let ToClient::Challenge {
            bytes,
            token: wanted,
        } = hear(&mut server).map_err(lost)?
        else {
            return Err(self.fault(Fault::NotDue));
        };
        if wanted && token.is_none() {
            return Err(Error::NoToken(self.target.clone()));
        }
        let answer = token.map(|token| token.answer(&bytes));
        say(&mut server, &ToServer::Hello { answer }).map_err(lost)?;
        let target = self.target.clone();
        match hear::<ToClient>(&mut server).map_err(lost)? {
            ToClient::Admitted => Ok(()),
            ToClient::Refused { why, later } => {
                let why = printable(&why);
                Err(match later {
                    true => Error::Busy { target, why },
                    false => Error::Refused { target, why },
                })
            }
            _ => Err(self.fault(Fault::NotDue)),
        }
    }

    /// Runs one test. A server that dies, or a word to stop, ends it early, with what there is by then.
    ///
    /// # Errors
    /// What keeps it from beginning.
    pub fn measure(&mut self, spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
        spec.check()?;
        match spec.test {
            Test::Icmp => icmp::measure(&[self.peer], spec, watch),
            Test::UdpRate => rate::search(self, spec, watch),
            _ => run::measure(self, spec, watch),
        }
    }

    /// Where the flows of a test go, and what they have to show there.
    fn begin(&mut self, spec: &Spec) -> Result<(Vec<SocketAddr>, Cookie), Error> {
        self.say(&ToServer::Begin(spec.clone()))?;
        match self.hear()? {
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
            _ => Err(self.fault(Fault::NotDue)),
        }
    }

    fn mark(&mut self) -> Result<(), Error> {
        self.say(&ToServer::Mark)
    }

    /// What the server did, and what ended a flow there before its time.
    fn end(&mut self, bytes: u64) -> Result<(End, Option<String>), Error> {
        self.say(&ToServer::End { bytes })?;
        match self.hear()? {
            ToClient::Ended { end, fault } => {
                let fault = fault.map(|fault| format!("{}: {}", self.target, printable(&fault)));
                Ok((end, fault))
            }
            _ => Err(self.fault(Fault::NotDue)),
        }
    }

    /// While a test goes on the server has nothing to say, so what there is to read is its end.
    fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn say(&mut self, message: &ToServer) -> Result<(), Error> {
        let said = say(&mut Within::new(PATIENCE, &self.stream), message);
        said.map_err(|fault| self.fault(fault))
    }

    fn hear(&mut self) -> Result<ToClient, Error> {
        let heard = hear(&mut Within::new(PATIENCE, &self.stream));
        heard.map_err(|fault| self.fault(fault))
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

/// `icmp` alone needs no server.
///
/// # Errors
/// As [`Session::measure`].
pub fn ping(target: &str, spec: &Spec, watch: Watch<'_>) -> Result<Outcome, Error> {
    spec.check()?;
    icmp::measure(&resolve(target)?, spec, watch)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
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
    fn what_a_server_says_is_one_short_line() {
        let said = format!("\x1b[2J\x07no\r\n{}", "x".repeat(1000));
        let printed = printable(&said);
        assert!(printed.starts_with("[2Jnox") && printed.len() == LONGEST_WORD);
    }
}
