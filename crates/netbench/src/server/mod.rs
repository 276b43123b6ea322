//! The end that answers: it does what a client asks for within its limits, one test at a time for each
//! client, and sends nothing to anybody else.

mod connections;
mod ports;
mod session;
mod sockets;
mod udp;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::connections::Connections;
pub use self::ports::Ports;
use crate::token::Token;

/// How long threads wait before they look whether the server ends.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// What a server does for a client, at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at once.
    pub clients: usize,
    /// Of a test, with its warm-up.
    pub duration: Duration,
    /// That it sends in datagrams, in payload bits a second; none: as fast as it can.
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

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// Clients have to know it. Where others than this machine reach it, there has to be one.
    pub token: Option<Token>,
    pub limits: Limits,
    /// Where tests' own connections and datagrams come in; none: wherever the kernel says.
    pub data_ports: Option<Ports>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0} is reached by other machines: name a token that clients have to know")]
    NoToken(SocketAddr),
    #[error("listening on {at}: {cause}")]
    Listen { at: SocketAddr, cause: io::Error },
}

/// What it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Admitted, and connected now.
    pub clients: usize,
    pub tests: u64,
    /// That were no clients, had the wrong token, took too long to say who they are, or were too many.
    pub refused: u64,
    /// Connections and datagrams for a test that were from somebody else.
    pub strangers: u64,
    /// Tests that ended before their time.
    pub broken: u64,
}

/// Serves until it is dropped.
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

    /// Where it listens.
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
            // A thread that panicked has said so.
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        thread::scope(|scope| {
            while !self.stops() {
                if !readable(listener) {
                    continue;
                }
                let Ok((stream, from)) = listener.accept() else {
                    // Out of descriptors, or the other end has gone already.
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

/// Waits a moment for something to be accepted or read.
fn readable(from: impl std::os::fd::AsFd) -> bool {
    let timeout = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::ZERO);
    let mut asked = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    poll(&mut asked, timeout).is_ok_and(|ready| ready > 0)
}
