//! Next hops that stay current: the kernel's changes are followed, unknown neighbours are asked
//! for, and stale ones are confirmed.
//!
//! Packets that a BPF program forwards confirm no neighbour, so the kernel would let entries that
//! are in constant use grow old; somebody has to do it for them.

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
use crate::netlink::split;
use crate::{Destination, Error, Fib, NextHop, Resolution};

/// Links, neighbours, addresses, routes and rules of both families, and next-hop objects
/// (`RTNLGRP_*`).
const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// Learned path MTUs, and what else changes without a message, are looked for this often.
const TICK: Duration = Duration::from_secs(1);
/// A neighbour is asked for at most this often.
const PROBE_EVERY: Duration = Duration::from_millis(500);
const EVENT_BYTES: usize = 64 << 10;

/// Keeps a set of destinations resolved. Dropping it ends its thread.
#[derive(Debug)]
pub struct Keeper {
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
    watched: BTreeMap<Destination, Watched>,
    failed: Option<String>,
}

#[derive(Debug)]
struct Watched {
    resolution: Resolution,
    probed: Option<Instant>,
}

impl Keeper {
    /// Follows the tables of the calling thread's namespace.
    ///
    /// `on_change` is called from the keeper's thread for each watched destination whose next hop
    /// is another than before, within milliseconds of the kernel's message.
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

    /// Watches a destination from now on, and returns its next hop as it is now. An unknown
    /// neighbour is being asked for when this returns.
    pub fn watch(&self, destination: Destination) -> Result<NextHop, Error> {
        let mut state = self.shared.lock();
        let resolution = state.fib.resolve(destination)?;
        let watched = Watched {
            resolution,
            probed: None,
        };
        state.watched.insert(destination, watched);
        state.probe(&destination);
        Ok(resolution.next_hop)
    }

    /// Forgets a destination.
    pub fn forget(&self, destination: &Destination) {
        self.shared.lock().watched.remove(destination);
    }

    /// The current next hop of a watched destination.
    pub fn next_hop(&self, destination: &Destination) -> Option<NextHop> {
        let state = self.shared.lock();
        let watched = state.watched.get(destination)?;
        Some(watched.resolution.next_hop)
    }

    /// Grows with each change of a next hop.
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// How often the kernel had more messages than room for them, and all was read anew.
    pub fn overruns(&self) -> u64 {
        self.shared.overruns.load(Ordering::Relaxed)
    }

    /// Why it has stopped following, if it has.
    pub fn failed(&self) -> Option<String> {
        self.shared.lock().failed.clone()
    }
}

impl Drop for Keeper {
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
    /// Resolves what the messages are about, and returns what is different now.
    fn refresh(&mut self, about: &About) -> Result<Vec<(Destination, NextHop)>, Error> {
        let mut changed = Vec::new();
        let concerned: Vec<Destination> = self
            .watched
            .iter()
            .filter(|(_, watched)| about.concerns(&watched.resolution))
            .map(|(destination, _)| *destination)
            .collect();
        for destination in concerned {
            if let Some(watched) = self.watched.get_mut(&destination) {
                let before = watched.resolution;
                watched.resolution = self.fib.resolve_again(destination, before.ifindex)?;
                if watched.resolution.next_hop != before.next_hop {
                    changed.push((destination, watched.resolution.next_hop));
                }
                self.probe(&destination);
            }
        }
        Ok(changed)
    }

    /// Has the kernel ask for the neighbour where it is unknown or stale.
    fn probe(&mut self, destination: &Destination) {
        let Some(watched) = self.watched.get_mut(destination) else {
            return;
        };
        let Resolution {
            next_hop,
            ifindex: Some(ifindex),
            neighbour: Some(neighbour),
            stale,
        } = watched.resolution
        else {
            return;
        };
        let wanted = stale || matches!(next_hop, NextHop::Unresolved(_));
        let due = watched.probed.is_none_or(|at| at.elapsed() >= PROBE_EVERY);
        if wanted && due {
            watched.probed = Some(Instant::now());
            // A device that went away meanwhile shows in the next message.
            if let Err(error) = self.fib.probe(ifindex, neighbour) {
                tracing::debug!("{error}");
            }
        }
    }
}

/// What a batch of messages may have changed.
#[derive(Debug, Default)]
struct About {
    everything: bool,
    neighbours: BTreeSet<(u32, IpAddr)>,
}

impl About {
    fn concerns(&self, resolution: &Resolution) -> bool {
        let neighbour = resolution.ifindex.zip(resolution.neighbour);
        self.everything || neighbour.is_some_and(|neighbour| self.neighbours.contains(&neighbour))
    }

    fn is_nothing(&self) -> bool {
        !self.everything && self.neighbours.is_empty()
    }

    /// A neighbour's message concerns those behind it, any other one everybody.
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
                None => self.everything = true,
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

    /// Until the keeper is dropped.
    fn follow(&mut self) -> Result<(), Error> {
        let mut ticked = Instant::now();
        while self.wait(TICK.saturating_sub(ticked.elapsed()))? {
            let mut about = self.read_events()?;
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                about.everything = true;
            }
            if about.is_nothing() {
                continue;
            }
            let changed = self.shared.lock().refresh(&about)?;
            for (destination, next_hop) in changed {
                self.shared.generation.fetch_add(1, Ordering::Release);
                (self.on_change)(destination, next_hop);
            }
        }
        Ok(())
    }

    /// Until there are messages or the time is over; false when the keeper is dropped.
    fn wait(&self, time: Duration) -> Result<bool, Error> {
        let mut watched = [
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
        ];
        // A part of a millisecond is waited for as a whole one: none would spin.
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

    fn read_events(&mut self) -> Result<About, Error> {
        let mut about = About::default();
        loop {
            match self.events.recv(&mut self.buffer.as_mut_slice(), 0) {
                Ok(length) => about.read(&self.buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(about),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.shared.overruns.fetch_add(1, Ordering::Relaxed);
                    about.everything = true;
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
