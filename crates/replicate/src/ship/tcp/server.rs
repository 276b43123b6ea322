//! The source's end: listens, starts a thread for each replica that reads the log for it, and wakes
//! the threads when the log grows. Replicas do not wait for each other.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::ServerConfig;

use super::message::Tip;
use super::replica::{self, Link};
use super::{Error, Reason};
use crate::log;
use crate::record::Entry;
use crate::ship::{Source, Watch};

/// How long threads wait before they check whether the server stops.
const TICK: Duration = Duration::from_millis(100);

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most replicas at once. Each has a thread and memory for two records.
    pub replicas: usize,
    /// The most connections that have not presented a certificate yet. For a further one, the
    /// server closes the oldest connection of the address that has the most of them.
    pub strangers: usize,
    /// How long a connection may take to present it.
    pub handshake: Duration,
    /// How often each end sends a keepalive.
    pub beat: Duration,
    /// How long a replica may send or read nothing.
    pub silence: Duration,
    /// Send only records that are on the log's disk.
    pub synced: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            replicas: 256,
            strangers: 32,
            handshake: Duration::from_secs(10),
            beat: Duration::from_secs(1),
            silence: Duration::from_secs(30),
            synced: false,
        }
    }
}

/// The state of the source and its replicas.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub tip: Tip,
    pub replicas: Vec<Replica>,
    pub counts: Counts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    pub address: SocketAddr,
    /// The name in its certificate.
    pub name: String,
    /// The last record and epoch on its disk.
    pub number: u64,
    pub epoch: u64,
    pub lag_records: u64,
    /// The age of the oldest record that was sent to it and is not on its disk, in milliseconds.
    pub lag_ms: u64,
}

/// Connections by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Presented a certificate of the right authority.
    pub welcomed: u64,
    /// Closed before that, because there were more such connections than the server allows.
    pub crowded: u64,
    /// Presented no valid certificate, did not use TLS, or sent nothing for too long.
    pub strangers: u64,
    /// Refused, with the reason.
    pub refused: u64,
    /// Sent a malformed message.
    pub malformed: u64,
    /// Read or sent nothing for too long.
    pub stalled: u64,
    /// Ended in another way: closed or broken.
    pub ended: u64,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) limits: Limits,
    pub(super) stop: AtomicBool,
    number: AtomicU64,
    epoch: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Connections without a certificate, oldest first.
    strangers: Vec<Stranger>,
    links: Vec<Arc<Link>>,
    counts: Counts,
    failed: Option<Error>,
}

/// A connection that has not presented a certificate yet.
#[derive(Debug)]
struct Stranger {
    address: SocketAddr,
    /// Used to close it.
    stream: TcpStream,
}

impl Server {
    /// Serves the log in this folder, which may still be empty.
    ///
    /// # Errors
    /// [`Error::Listen`], and [`Error::Log`] if there is no such folder.
    pub fn start(
        folder: &Path,
        listen: SocketAddr,
        tls: Arc<ServerConfig>,
        limits: Limits,
    ) -> Result<Self, Error> {
        let watched = |source| {
            let what = format!("watching {}", folder.display());
            Error::Listen { what, source }
        };
        let tip = Source::late(folder)?;
        let watch = Watch::new(folder).map_err(watched)?;
        let at = |source| {
            let what = format!("listening on {listen}");
            Error::Listen { what, source }
        };
        let listener = TcpListener::bind(listen).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            tls,
            limits,
            stop: AtomicBool::new(false),
            number: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let (following, accepting) = (Arc::clone(&shared), Arc::clone(&shared));
        let follow = thread::Builder::new().name("follow".to_owned());
        let accept = thread::Builder::new().name("accept".to_owned());
        let mut server = Self {
            address,
            shared,
            threads: Vec::new(),
        };
        let follow = follow.spawn(move || following.follow(&watch, tip));
        server.threads.push(follow.map_err(at)?);
        let accept = accept.spawn(move || accepting.accept(&listener));
        server.threads.push(accept.map_err(at)?);
        Ok(server)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn status(&self) -> Status {
        let tip = self.shared.tip();
        let state = self.shared.state();
        Status {
            tip,
            replicas: state.links.iter().map(|link| link.status(tip)).collect(),
            counts: state.counts,
        }
    }

    /// The error that ended it: the log cannot be read any more.
    pub fn failed(&self) -> Option<Error> {
        self.shared.state().failed.take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The head of the source's log.
    pub(super) fn tip(&self) -> Tip {
        Tip {
            number: self.number.load(Ordering::Relaxed),
            epoch: self.epoch.load(Ordering::Relaxed),
        }
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Registers a replica that has presented its certificate.
    pub(super) fn welcome(&self, link: &Arc<Link>) -> Result<(), Error> {
        let mut state = self.state();
        state.forget(link.address());
        state.counts.welcomed += 1;
        if state.links.len() >= self.limits.replicas {
            let (reason, text) = (Reason::Full, format!("{}", self.limits.replicas));
            return Err(Error::Refused { reason, text });
        }
        state.links.push(Arc::clone(link));
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counts and lists are consistent between any two statements, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the replicas' threads when something was written, and follows the head of the log.
    fn follow(&self, watch: &Watch, mut tip: Source) {
        while !self.stops() {
            let followed = self.read_tip(&mut tip).and_then(|()| {
                watch.wait(TICK)?;
                Ok(())
            });
            if let Err(error) = followed {
                self.state().failed = Some(error);
                return;
            }
            // Before the head is read, so that the woken threads do not wait for that.
            for link in &self.state().links {
                link.wake();
            }
        }
    }

    fn read_tip(&self, tip: &mut Source) -> Result<(), Error> {
        loop {
            match tip.read() {
                Ok(Some(record)) => {
                    self.number.store(record.number, Ordering::Relaxed);
                    if let Entry::Epoch { number } = record.entry {
                        self.epoch.store(number, Ordering::Relaxed);
                    }
                }
                Ok(None) => return Ok(()),
                // The log was compacted beyond this position while it was read.
                Err(log::Error::Compacted { .. }) => *tip = Source::late(&self.folder)?,
                Err(error) => return Err(error.into()),
            }
            if self.stops() {
                return Ok(());
            }
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !self.stops() {
            let timeout = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::MAX);
            let mut asked = [PollFd::new(
                std::os::fd::AsFd::as_fd(listener),
                PollFlags::POLLIN,
            )];
            // Errors show up at the socket itself.
            let _ = poll(&mut asked, timeout);
            match listener.accept() {
                Ok((stream, address)) => threads.extend(self.admit(stream, address)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Out of descriptors, or the other end is gone already. Other connections wait in
                // the kernel.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            threads.retain(|thread| !thread.is_finished());
        }
        for link in &self.state().links {
            link.wake();
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) -> Option<JoinHandle<()>> {
        let mut state = self.state();
        let own = stream.try_clone().ok();
        let Some(own) = own.filter(|_| state.has_room(self.limits.strangers)) else {
            state.counts.crowded += 1;
            return None;
        };
        state.strangers.push(Stranger {
            address,
            stream: own,
        });
        drop(state);
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("replica".to_owned());
        let started = thread.spawn(move || shared.serve(stream, address));
        if started.is_err() {
            let mut state = self.state();
            state.forget(address);
            state.counts.crowded += 1;
        }
        started.ok()
    }

    fn serve(&self, stream: TcpStream, address: SocketAddr) {
        let mut link = None;
        let ended = replica::serve(self, stream, address, &mut link);
        let mut state = self.state();
        let Some(link) = link else {
            // A connection that was closed in favour of another is counted as such.
            state.counts.strangers += u64::from(state.forget(address));
            return;
        };
        state.links.retain(|other| !Arc::ptr_eq(other, &link));
        *state.counts.of(&ended) += 1;
    }
}

impl State {
    /// Whether there is room for another connection without a certificate. If necessary, closes
    /// one, so that a client that connects and sends nothing displaces only connections from its
    /// own address.
    fn has_room(&mut self, most: usize) -> bool {
        if self.strangers.len() < most {
            return true;
        }
        let mut of: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in &self.strangers {
            *of.entry(stranger.address.ip()).or_default() += 1;
        }
        let crowd = of.values().max();
        let oldest = self
            .strangers
            .iter()
            .position(|stranger| of.get(&stranger.address.ip()) == crowd);
        let Some(oldest) = oldest else {
            return false;
        };
        let stranger = self.strangers.remove(oldest);
        // Its thread notices that and ends.
        let _ = stranger.stream.shutdown(Shutdown::Both);
        self.counts.crowded += 1;
        true
    }

    /// Removes a connection from the list. Returns whether it was there.
    fn forget(&mut self, address: SocketAddr) -> bool {
        let before = self.strangers.len();
        self.strangers
            .retain(|stranger| stranger.address != address);
        self.strangers.len() < before
    }
}

impl Counts {
    fn of(&mut self, ended: &Result<(), Error>) -> &mut u64 {
        match ended {
            Err(Error::Refused { .. } | Error::Version(_) | Error::Log(_)) => &mut self.refused,
            Err(Error::Malformed(_)) => &mut self.malformed,
            Err(Error::Stalled(_) | Error::Silent(_)) => &mut self.stalled,
            _ => &mut self.ended,
        }
    }
}
