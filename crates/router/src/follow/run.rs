//! The thread that reads the kernel's tables. Notifications are handled before dumps, so that a dump of a
//! million routes delays a change by at most one datagram.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lpm::Rib;
use netdev::monitor::{Monitor, Progress, RECV_BUFFER_BYTES, Table};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::fifo_priority::FifoPriority;
use super::plane_writer::RibBuilder;
use super::status::Lag;
use super::{Follow, Status, SyncState};
use crate::forward::Plane;
use crate::image::ImageRoutes;
use crate::rules::RuleSet;

/// How often neighbours are probed and refused prefixes retried.
const TICK: Duration = Duration::from_secs(1);
/// Delay of a resync after a change without notifications: such changes come in groups.
const RESYNC_DELAY: Duration = Duration::from_millis(200);
/// Next-hop numbers that static routes leave to local addresses and neighbours.
const SPARE_NUMBERS: u16 = 1024;
/// Changes that are applied before others may read the state.
const MAX_BATCH: usize = 1024;

/// Options of a follower.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of the netlink receive buffer, in bytes.
    pub recv_buffer_bytes: usize,
    /// Next-hop numbers that the plane has for each family.
    pub next_hops: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recv_buffer_bytes: RECV_BUFFER_BYTES,
            next_hops: lpm::NextHop::MAX,
        }
    }
}

/// Why a follower could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Kernel(#[from] netdev::Error),
    #[error("following the kernel's tables: {0}")]
    Thread(std::io::Error),
    #[error(
        "{hops} next hops of one address family leave no numbers for neighbours: {limit} at most can be routed by"
    )]
    NextHops { hops: usize, limit: u16 },
    #[error("{0}")]
    Plane(Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps a plane current until it is dropped.
#[derive(Debug)]
pub struct Follower<P: Plane + Send + 'static> {
    shared: Arc<Mutex<State<P>>>,
    /// Serialises replacements of the rules.
    rules_lock: Mutex<()>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State<P> {
    follow: Follow<P>,
    overruns: u64,
    lag: Lag,
    failed: Option<String>,
}

impl<P: Plane + Send + 'static> Follower<P> {
    /// Follows the tables of the calling thread's namespace with the plane that `make` makes of
    /// the routes they hold; next hops are given their meanings afterwards. When it returns, the
    /// plane has all of it.
    ///
    /// # Errors
    /// No netlink, no thread; what `make` says.
    pub fn start<E>(
        options: Options,
        make: impl FnOnce(Rib<u32>, Rib<u128>) -> Result<P, E>,
    ) -> Result<Self, RunError>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let follow = Follow::new(RibBuilder::default(), options.next_hops);
        Self::start_from(options, follow, make)
    }

    /// As `start`, but routes by these in place of those that others wrote into the kernel: `make` makes a
    /// plane that has them, and those that it is given besides, of this machine's addresses and
    /// neighbours.
    ///
    /// # Errors
    /// As `start`; more next hops than leave numbers for neighbours.
    pub fn start_with<E>(
        options: Options,
        routes: &ImageRoutes,
        make: impl FnOnce(Rib<u32>, Rib<u128>) -> Result<P, E>,
    ) -> Result<Self, RunError>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let hops = routes.hops4.len().max(routes.hops6.len());
        let limit = options.next_hops.saturating_sub(SPARE_NUMBERS);
        if hops > usize::from(limit) {
            return Err(RunError::NextHops { hops, limit });
        }
        let follow = Follow::with(RibBuilder::default(), options.next_hops, routes);
        Self::start_from(options, follow, make)
    }

    fn start_from<E>(
        options: Options,
        follow: Follow<RibBuilder>,
        make: impl FnOnce(Rib<u32>, Rib<u128>) -> Result<P, E>,
    ) -> Result<Self, RunError>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let (stop, stopped) = UnixStream::pair().map_err(RunError::Thread)?;
        let monitor = Monitor::open(options.recv_buffer_bytes)?;
        let mut reader = Reader::new(follow, monitor, stopped);
        reader.list()?;
        while reader.listing.is_some() && reader.step()? {}
        let reader = reader.onto(make)?;
        let shared = Arc::clone(&reader.shared);
        let thread = std::thread::Builder::new()
            .name("routes".to_owned())
            .spawn(move || reader.run())
            .map_err(RunError::Thread)?;
        Ok(Self {
            shared,
            rules_lock: Mutex::new(()),
            stop,
            thread: Some(thread),
        })
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        let state = lock(&self.shared);
        let mut status = state.follow.status();
        status.overruns = state.overruns;
        status.event_lag_us = state.lag.clone();
        if state.failed.is_some() {
            status.sync = SyncState::Failed;
        }
        status
    }

    /// Why it has stopped following, if it has; the plane forwards on as it was told last.
    pub fn failed(&self) -> Option<String> {
        lock(&self.shared).failed.clone()
    }

    /// Filters by these rules instead of those before. While they are compiled, and after they are in force,
    /// changes of the kernel are carried out.
    ///
    /// # Errors
    /// The plane's; the rules before still hold.
    pub fn rules(&self, rules: &RuleSet) -> Result<(), P::Error> {
        let _guard = lock(&self.rules_lock);
        let compile = self.with(|follow| follow.plane().compiler());
        let compiled = compile(rules)?;
        let cleanup = self.with(|follow| follow.plane_mut().enforce(compiled))?;
        cleanup();
        Ok(())
    }

    /// Looks at or changes what is not routes. Changes of the kernel wait meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut Follow<P>) -> T) -> T {
        work(&mut lock(&self.shared).follow)
    }
}

impl<P: Plane + Send + 'static> Drop for Follower<P> {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Reader<P> {
    shared: Arc<Mutex<State<P>>>,
    monitor: Monitor,
    stopped: UnixStream,
    /// The place of the table being listed among all.
    listing: Option<usize>,
    resync_since: Option<Instant>,
    /// Since when there may have been changes that are not carried out.
    waiting_since: Option<Instant>,
    ticked: Instant,
    /// Not while the calling thread begins.
    priority: Option<FifoPriority>,
}

impl Reader<RibBuilder> {
    /// Goes on with the real plane.
    fn onto<P: Plane, E: std::error::Error + Send + Sync + 'static>(
        self,
        make: impl FnOnce(Rib<u32>, Rib<u128>) -> Result<P, E>,
    ) -> Result<Reader<P>, RunError> {
        let mut follow = {
            let mut state = lock(&self.shared);
            let empty = Follow::new(RibBuilder::default(), 0);
            std::mem::replace(&mut state.follow, empty)
        };
        let RibBuilder { v4, v6 } = std::mem::take(follow.plane_mut());
        let plane = make(v4, v6).map_err(|error| RunError::Plane(Box::new(error)))?;
        Ok(Reader::new(follow.onto(plane), self.monitor, self.stopped))
    }
}

impl<P: Plane> Reader<P> {
    fn new(follow: Follow<P>, monitor: Monitor, stopped: UnixStream) -> Self {
        Self {
            shared: Arc::new(Mutex::new(State {
                follow,
                overruns: 0,
                lag: Lag::default(),
                failed: None,
            })),
            monitor,
            stopped,
            listing: None,
            resync_since: None,
            waiting_since: None,
            ticked: Instant::now(),
            priority: None,
        }
    }

    fn run(mut self) {
        self.priority = Some(FifoPriority::default());
        loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!("following the kernel's tables: {error}");
                    lock(&self.shared).failed = Some(error.to_string());
                    return;
                }
            }
        }
    }

    /// Waits for something to do and does it; false when there is nothing more to do ever.
    fn step(&mut self) -> Result<bool, netdev::Error> {
        if self.waiting_since.is_none() && self.listing.is_none() {
            self.priority.iter_mut().for_each(FifoPriority::before_wait);
        }
        if !self.wait() {
            return Ok(false);
        }
        self.priority.iter_mut().for_each(FifoPriority::before_work);
        self.waiting_since.get_or_insert_with(Instant::now);
        if self.read_changes()? == Progress::Overrun {
            lock(&self.shared).overruns += 1;
            tracing::warn!("more changes of routes than the kernel keeps: listing all of them");
            self.list()?;
        } else if self.listing.is_some() {
            self.read_listing()?;
        }
        self.maintain()?;
        Ok(true)
    }

    fn wait(&self) -> bool {
        let mut watched = vec![
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.monitor.changes(), PollFlags::POLLIN),
        ];
        if self.listing.is_some() {
            watched.push(PollFd::new(self.monitor.dumped(), PollFlags::POLLIN));
        }
        let tick = TICK.saturating_sub(self.ticked.elapsed());
        let resync = self
            .resync_since
            .map(|at| RESYNC_DELAY.saturating_sub(at.elapsed()));
        let time = if self.waiting_since.is_some() {
            Duration::ZERO
        } else {
            // A part of a millisecond is waited for as a whole one: none would spin.
            resync.unwrap_or(tick).min(tick) + Duration::from_millis(1)
        };
        // Interrupted, it comes back with nothing to do.
        let _ = poll(
            &mut watched,
            PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX),
        );
        let stopped = watched[0].revents();
        stopped.is_none_or(|events| events.is_empty())
    }

    fn read_changes(&mut self) -> Result<Progress, netdev::Error> {
        let mut state = lock(&self.shared);
        let since = self.waiting_since.unwrap_or_else(Instant::now);
        for _ in 0..MAX_BATCH {
            let follow = &mut state.follow;
            let progress = self
                .monitor
                .read_changes(|message| follow.change(message))?;
            if progress != Progress::Read {
                self.waiting_since = None;
                return Ok(progress);
            }
            state.lag.note(since.elapsed());
        }
        Ok(Progress::Read)
    }

    fn list(&mut self) -> Result<(), netdev::Error> {
        self.listing = Some(0);
        self.resync_since = None;
        lock(&self.shared).follow.begin_listing();
        self.monitor.start_dump(Table::ALL[0])
    }

    fn read_listing(&mut self) -> Result<(), netdev::Error> {
        let Some(place) = self.listing else {
            return Ok(());
        };
        let mut state = lock(&self.shared);
        let follow = &mut state.follow;
        if self.monitor.read_dump(|message| follow.listed(message))? != Progress::Done {
            return Ok(());
        }
        match Table::ALL.get(place + 1) {
            Some(next) => {
                self.listing = Some(place + 1);
                self.monitor.start_dump(*next)
            }
            None => {
                self.listing = None;
                follow.end_listing();
                Ok(())
            }
        }
    }

    fn maintain(&mut self) -> Result<(), netdev::Error> {
        let mut state = lock(&self.shared);
        let follow = &mut state.follow;
        if self.waiting_since.is_none() {
            follow.end_batch();
        }
        let now = Instant::now();
        if self.ticked.elapsed() >= TICK {
            self.ticked = now;
            follow.retry();
        }
        let probes = follow.to_probe(now);
        let resync = follow.needs_resync() && self.listing.is_none();
        drop(state);
        for (ifindex, neighbour) in probes {
            // A device that went away meanwhile shows in the next message.
            if let Err(error) = self.monitor.probe(ifindex, neighbour) {
                tracing::debug!("{error}");
            }
        }
        if !resync {
            return Ok(());
        }
        let since = *self.resync_since.get_or_insert(now);
        if since.elapsed() >= RESYNC_DELAY {
            self.list()?;
        }
        Ok(())
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
