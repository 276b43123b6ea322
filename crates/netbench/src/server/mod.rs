//! The server: it runs the tests that clients ask for, within its limits, one at a time for each client, and sends
//! nothing to anybody else.

mod connections;
mod datagrams;
mod ports;
mod session;
mod sockets;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use datapath::{Classify, ErrorClass};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::connections::Connections;
pub use self::ports::Ports;
use crate::client::resolve;
use crate::token::Token;

/// The interval at which waiting threads check whether the server or the test has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Limits of what a server does for its clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at once.
    pub clients: usize,
    /// The longest test, with its warm-up.
    pub duration: Duration,
    /// The rate of datagrams that it sends, in payload bits a second; none: as fast as it can.
    pub bits_per_s: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 16,
            duration: Duration::from_mins(10),
            bits_per_s: None,
        }
    }
}

/// An address to listen on, as a user writes it: `ADDRESS:PORT`. A link-local address names its device as well, as
/// `[fe80::1%eth0]:7411` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl Default for ListenAddress {
    fn default() -> Self {
        Self((Ipv4Addr::LOCALHOST, crate::PORT).into())
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\": write ADDRESS:PORT, as 0.0.0.0:7411 or [fe80::1%eth0]:7411");
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        // Only a link-local address with a device is left; a name would need a resolver to listen.
        let scoped = text.starts_with('[') && text.contains('%');
        let found = match scoped {
            true => resolve(text).map_err(|error| error.to_string())?,
            false => return Err(wrong()),
        };
        found.first().copied().map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// The token that clients must know. It is required where other machines reach the server.
    pub token: Option<Token>,
    pub limits: Limits,
    /// Ports of the tests' own connections and datagrams; none: the kernel chooses.
    pub data_ports: Option<Ports>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0} is reached by other machines: name a token that clients have to know")]
    NoToken(SocketAddr),
    #[error("listening on {at}: {cause}")]
    Listen { at: SocketAddr, cause: io::Error },
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoToken(_) => ErrorClass::Input,
            Self::Listen { .. } => ErrorClass::Failed,
        }
    }
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Clients that are connected now.
    pub clients: usize,
    pub tests: u64,
    /// Connections that were no clients, had a wrong token, took too long to authenticate, or were too many.
    pub refused: u64,
    /// Connections and datagrams to a test's ports that were not its client's.
    pub strangers: u64,
    /// Tests that ended early.
    pub broken: u64,
}

/// A server, which runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    token: Option<Token>,
    limits: Limits,
    data_ports: Option<Ports>,
    stop: AtomicBool,
    connections: Connections,
    tests: AtomicU64,
    refused: AtomicU64,
    strangers: AtomicU64,
    broken: AtomicU64,
}

impl Server {
    /// Listens, and serves from threads of its own.
    ///
    /// # Errors
    /// [`Error`]
    pub fn start(settings: Settings) -> Result<Self, Error> {
        let at = settings.listen;
        if settings.token.is_none() && !at.ip().is_loopback() {
            return Err(Error::NoToken(at));
        }
        let failed = |cause| Error::Listen { at, cause };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            token: settings.token,
            limits: settings.limits,
            data_ports: settings.data_ports,
            stop: AtomicBool::new(false),
            connections: Connections::default(),
            tests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        });
        let serving = Arc::clone(&shared);
        let accepting = thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || serving.accept(&listener))
            .map_err(failed)?;
        Ok(Self {
            address,
            shared,
            accepting: Some(accepting),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn status(&self) -> Status {
        let Shared {
            connections,
            tests,
            refused,
            strangers,
            broken,
            ..
        } = &*self.shared;
        Status {
            clients: connections.clients(),
            tests: tests.load(Relaxed),
            refused: refused.load(Relaxed),
            strangers: strangers.load(Relaxed),
            broken: broken.load(Relaxed),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.connections.close();
        if let Some(accepting) = self.accepting.take() {
            // A thread that panicked has printed its message.
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        thread::scope(|scope| {
            while !self.is_stopped() {
                if !readable(listener) {
                    continue;
                }
                let Ok((stream, from)) = listener.accept() else {
                    // Out of descriptors, or the other end is gone already.
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let shared = &self;
                let serve = move || {
                    let served = match shared.connections.enter(&stream) {
                        Ok(entry) => session::serve(shared, &stream, from, &entry),
                        Err(error) => Err(error.into()),
                    };
                    if served.is_err() {
                        shared.refused.fetch_add(1, Relaxed);
                    }
                };
                let named = thread::Builder::new().name("client".to_owned());
                if named.spawn_scoped(scope, serve).is_err() {
                    shared.refused.fetch_add(1, Relaxed);
                }
            }
        });
    }
}

/// Waits up to [`POLL_INTERVAL`] for something to accept or read.
fn readable(from: impl std::os::fd::AsFd) -> bool {
    let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
    let mut polled = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, timeout).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn link_local_address_names_its_device() {
        let listen = |text: &str| text.parse::<ListenAddress>().map(|it| it.0);
        assert_eq!(listen("0.0.0.0:7411"), Ok("0.0.0.0:7411".parse().unwrap()));
        let scoped = listen("[fe80::1%lo]:7411").unwrap();
        assert!(matches!(scoped, SocketAddr::V6(at) if at.scope_id() == 1 && at.port() == 7411));
        for wrong in [
            "",
            "7411",
            "localhost:7411",
            "[fe80::1%]:1",
            "[fe80::1%none]:1",
        ] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }
}
