//! A thread that keeps next hops current: it follows the kernel's changes and probes unknown and
//! stale neighbours.
//!
//! Packets that a BPF program forwards confirm no neighbour, so the kernel would let entries that
//! are in constant use become stale. The tracker probes them instead.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::neighbour::Neighbour;
use crate::socket::split;
use crate::{Destination, Error, Fib, NextHop, Resolution};

/// Links, neighbours, addresses, routes and rules of both families, and next-hop objects
/// (`RTNLGRP_*`).
const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// Interval of a full refresh: learnt path MTUs, among others, change without a message.
const TICK: Duration = Duration::from_secs(1);
/// Minimum time between two probes of a neighbour.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
const EVENT_BYTES: usize = 64 << 10;

/// Keeps the next hops of a set of destinations current. Dropping it ends its thread.
#[derive(Debug)]
pub struct NextHopTracker {
    shared: Arc<Shared>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    generation: AtomicU64,
    overruns: AtomicU64,
}

#[derive(Debug)]
struct State {
    fib: Fib,
    watched: BTreeMap<Destination, Entry>,
    failed: Option<String>,
}

#[derive(Debug)]
struct Entry {
    resolution: Resolution,
    probed: Option<Instant>,
}

impl NextHopTracker {
    /// Follows the tables of the calling thread's namespace.
    ///
    /// The tracker's thread calls `on_change` for each watched destination whose next hop has
    /// changed, within milliseconds of the kernel's message.
    pub fn start(
        on_change: impl FnMut(Destination, NextHop) + Send + 'static,
    ) -> Result<Self, Error> {
        let events = subscribe().map_err(Error::Socket)?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::Socket)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                fib: Fib::new()?,
                watched: BTreeMap::new(),
                failed: None,
            }),
            generation: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        });
        let follower = Follower {
            shared: Arc::clone(&shared),
            events,
            stopped,
            buffer: vec![0; EVENT_BYTES],
            on_change,
        };
        let thread = std::thread::Builder::new()
            .name("next-hops".to_owned())
            .spawn(move || follower.run())
            .map_err(Error::Socket)?;
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Watches a destination from now on, and returns its current next hop. An unknown neighbour
    /// has been probed when this returns.
    pub fn watch(&self, destination: Destination) -> Result<NextHop, Error> {
        let mut state = self.shared.lock();
        let resolution = state.fib.resolve(destination)?;
        let entry = Entry {
            resolution,
            probed: None,
        };
        state.watched.insert(destination, entry);
        state.probe(&destination);
        Ok(resolution.next_hop)
    }

    /// Stops watching a destination.
    pub fn forget(&self, destination: &Destination) {
        self.shared.lock().watched.remove(destination);
    }

    /// The current next hop of a watched destination.
    pub fn next_hop(&self, destination: &Destination) -> Option<NextHop> {
        let state = self.shared.lock();
        let entry = state.watched.get(destination)?;
        Some(entry.resolution.next_hop)
    }

    /// Grows with each change of a next hop.
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// How often the kernel's message buffer was full and every destination was resolved again.
    pub fn overruns(&self) -> u64 {
        self.shared.overruns.load(Ordering::Relaxed)
    }

    /// The error that ended the thread.
    pub fn failed(&self) -> Option<String> {
        self.shared.lock().failed.clone()
    }
}

impl Drop for NextHopTracker {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Resolves the destinations that the messages concern, and returns the changed next hops.
    fn refresh(
        &mut self,
        invalidation: &Invalidation,
    ) -> Result<Vec<(Destination, NextHop)>, Error> {
        let mut changed = Vec::new();
        let concerned: Vec<Destination> = self
            .watched
            .iter()
            .filter(|(_, entry)| invalidation.covers(&entry.resolution))
            .map(|(destination, _)| *destination)
            .collect();
        for destination in concerned {
            if let Some(entry) = self.watched.get_mut(&destination) {
                let before = entry.resolution;
                entry.resolution = self.fib.resolve_again(destination, before.ifindex)?;
                if entry.resolution.next_hop != before.next_hop {
                    changed.push((destination, entry.resolution.next_hop));
                }
                self.probe(&destination);
            }
        }
        Ok(changed)
    }

    /// Makes the kernel probe the destination's neighbour if that is unknown or stale.
    fn probe(&mut self, destination: &Destination) {
        let Some(entry) = self.watched.get_mut(destination) else {
            return;
        };
        let Resolution {
            next_hop,
            ifindex: Some(ifindex),
            neighbour: Some(neighbour),
            stale,
        } = entry.resolution
        else {
            return;
        };
        let wanted = stale || matches!(next_hop, NextHop::Unresolved(_));
        let due = entry.probed.is_none_or(|at| at.elapsed() >= PROBE_INTERVAL);
        if wanted && due {
            entry.probed = Some(Instant::now());
            // If the device has disappeared meanwhile, the next message reports it.
            if let Err(error) = self.fib.probe(ifindex, neighbour) {
                tracing::debug!("{error}");
            }
        }
    }
}

/// The resolutions that a batch of messages may have changed.
#[derive(Debug, Default)]
struct Invalidation {
    all: bool,
    neighbours: BTreeSet<(u32, IpAddr)>,
}

impl Invalidation {
    fn covers(&self, resolution: &Resolution) -> bool {
        let neighbour = resolution.ifindex.zip(resolution.neighbour);
        self.all || neighbour.is_some_and(|neighbour| self.neighbours.contains(&neighbour))
    }

    fn is_empty(&self) -> bool {
        !self.all && self.neighbours.is_empty()
    }

    /// A neighbour's message concerns the destinations behind it; any other message concerns all.
    fn read(&mut self, datagram: &[u8]) {
        for bytes in split(datagram) {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
            let neighbour = match message.map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(
                    RouteNetlinkMessage::NewNeighbour(message)
                    | RouteNetlinkMessage::DelNeighbour(message),
                )) => Neighbour::read(&message),
                _ => None,
            };
            match neighbour {
                Some(neighbour) => {
                    self.neighbours
                        .insert((neighbour.ifindex, neighbour.address));
                }
                None => self.all = true,
            }
        }
    }
}

struct Follower<F> {
    shared: Arc<Shared>,
    events: Socket,
    stopped: UnixStream,
    buffer: Vec<u8>,
    on_change: F,
}

impl<F: FnMut(Destination, NextHop)> Follower<F> {
    fn run(mut self) {
        if let Err(error) = self.follow() {
            tracing::error!("following the routing tables: {error}");
            self.shared.lock().failed = Some(error.to_string());
        }
    }

    /// Runs until the tracker is dropped.
    fn follow(&mut self) -> Result<(), Error> {
        let mut ticked = Instant::now();
        while self.wait(TICK.saturating_sub(ticked.elapsed()))? {
            let mut invalidation = self.read_events()?;
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                invalidation.all = true;
            }
            if invalidation.is_empty() {
                continue;
            }
            let changed = self.shared.lock().refresh(&invalidation)?;
            for (destination, next_hop) in changed {
                self.shared.generation.fetch_add(1, Ordering::Release);
                (self.on_change)(destination, next_hop);
            }
        }
        Ok(())
    }

    /// Waits for messages or for the end of `time`; false when the tracker is dropped.
    fn wait(&self, time: Duration) -> Result<bool, Error> {
        let mut watched = [
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
        ];
        // Rounding a fraction of a millisecond down to zero would spin.
        let time = time + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Error::Socket(errno.into())),
        }
        let stopped = watched[0]
            .revents()
            .is_some_and(|events| !events.is_empty());
        Ok(!stopped)
    }

    fn read_events(&mut self) -> Result<Invalidation, Error> {
        let mut invalidation = Invalidation::default();
        loop {
            match self.events.recv(&mut self.buffer.as_mut_slice(), 0) {
                Ok(length) => invalidation.read(&self.buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(invalidation),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.shared.overruns.fetch_add(1, Ordering::Relaxed);
                    invalidation.all = true;
                }
                Err(error) => return Err(Error::Socket(error)),
            }
        }
    }
}

fn subscribe() -> io::Result<Socket> {
    let mut events = Socket::new(NETLINK_ROUTE)?;
    events.bind_auto()?;
    events.set_non_blocking(true)?;
    for group in GROUPS {
        events.add_membership(group)?;
    }
    Ok(events)
}
