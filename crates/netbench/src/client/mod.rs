//! The end that asks: a session with a server, and one test after the other.

mod icmp;
mod rate;
mod run;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::message::{Cookie, Fault, ToClient, ToServer, VERSION, greet, hear, say};
use crate::outcome::{End, Outcome};
use crate::spec::{Invalid, Spec, Test};
use crate::token::Token;

pub use rate::{MOST_LOSS, Step};

/// A server says what it has to say within this.
const PATIENCE: Duration = Duration::from_secs(10);

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
            | Self::Declined { .. } => true,
            Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Lost { .. }
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
    peer: IpAddr,
}

/// Where a target is: `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.
///
/// # Errors
/// [`Error::Target`], [`Error::Unreachable`] for a name that nobody knows.
pub fn resolve(target: &str) -> Result<SocketAddr, Error> {
    let named = |text: &str| match text.to_socket_addrs() {
        Ok(mut found) => found.next().ok_or_else(|| Error::Target(target.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(Error::Target(target.to_owned()))
        }
        Err(cause) => Err(Error::Unreachable {
            target: target.to_owned(),
            cause,
        }),
    };
    if let Ok(address) = target.parse::<IpAddr>() {
        return Ok((address, crate::PORT).into());
    }
    match target.rsplit_once(':') {
        Some((host, port))
            if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) =>
        {
            named(target)
        }
        Some(_) => Err(Error::Target(target.to_owned())),
        None => named(&format!("{target}:{}", crate::PORT)),
    }
}

impl Session {
    /// # Errors
    /// [`Error`] says why there is none.
    pub fn open(target: &str, token: Option<&Token>) -> Result<Self, Error> {
        let at = resolve(target)?;
        let stream = TcpStream::connect_timeout(&at, PATIENCE);
        let stream = stream.map_err(|cause| Error::Unreachable {
            target: at.to_string(),
            cause,
        })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut session = Self {
            target: at.to_string(),
            stream,
            peer: at.ip(),
        };
        let greeted = greet(&mut session.stream);
        greeted.map_err(|fault| session.fault(fault))?;
        session.hello(token)?;
        Ok(session)
    }

    fn hello(&mut self, token: Option<&Token>) -> Result<(), Error> {
        let ToClient::Challenge {
            bytes,
            token: wanted,
        } = self.hear()?
        else {
            return Err(self.fault(Fault::NotDue));
        };
        if wanted && token.is_none() {
            return Err(Error::NoToken(self.target.clone()));
        }
        let answer = token.map(|token| token.answer(&bytes));
        self.say(&ToServer::Hello { answer })?;
        let target = self.target.clone();
        match self.hear()? {
            ToClient::Admitted => Ok(()),
            ToClient::Refused { why, later: true } => Err(Error::Busy { target, why }),
            ToClient::Refused { why, .. } => Err(Error::Refused { target, why }),
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
            Test::Icmp => icmp::measure(self.peer, spec, watch),
            Test::UdpRate => rate::search(self, spec, watch),
            _ => run::measure(self, spec, watch),
        }
    }

    /// Where the flows of a test go, and what they have to show there.
    fn begin(&mut self, spec: &Spec) -> Result<(Vec<SocketAddr>, Cookie), Error> {
        self.say(&ToServer::Begin(spec.clone()))?;
        match self.hear()? {
            ToClient::Ready { ports, cookie } => {
                let flows = ports.into_iter().map(|port| (self.peer, port).into());
                Ok((flows.collect(), cookie))
            }
            ToClient::Declined { why } => Err(Error::Declined {
                target: self.target.clone(),
                test: spec.test,
                why,
            }),
            _ => Err(self.fault(Fault::NotDue)),
        }
    }

    fn mark(&mut self) -> Result<(), Error> {
        self.say(&ToServer::Mark)
    }

    fn end(&mut self, bytes: u64) -> Result<End, Error> {
        self.say(&ToServer::End { bytes })?;
        match self.hear()? {
            ToClient::Ended(end) => Ok(end),
            _ => Err(self.fault(Fault::NotDue)),
        }
    }

    /// While a test goes on the server has nothing to say, so what there is to read is its end.
    fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn say(&mut self, message: &ToServer) -> Result<(), Error> {
        say(&mut self.stream, message).map_err(|fault| self.fault(fault))
    }

    fn hear(&mut self) -> Result<ToClient, Error> {
        hear(&mut self.stream).map_err(|fault| self.fault(fault))
    }

    fn fault(&self, fault: Fault) -> Error {
        let target = self.target.clone();
        match fault {
            Fault::Stranger => Error::Stranger(target),
            Fault::Version(theirs) => Error::Version { target, theirs },
            fault => Error::Lost {
                target,
                cause: fault.to_string(),
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
    icmp::measure(resolve(target)?.ip(), spec, watch)
}
