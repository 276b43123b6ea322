//! Back-pressure: while too many bytes wait, the application's cgroup is frozen. A separate thread
//! checks, so that nothing is lost while the capture waits for a disk.

mod cgroup;
mod mark;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sys::bpf_ring::Gauge;
use sys::watchdog::Watchdog;

use super::Error;
use super::acknowledgements::Acknowledgements;
use cgroup::{Cgroup, THAW};
use mark::Mark;

pub use cgroup::FreezeError;

/// How often the backlog is checked.
const LOOK: Duration = Duration::from_millis(1);
/// How often to look for a cgroup that is missing, and to check that an existing one is still
/// there.
const SEARCH: Duration = Duration::from_millis(100);
/// The longest time that the cgroup is frozen without interruption.
const MAX_FREEZE: Duration = Duration::from_secs(5);
/// After this time the watchdog thaws the cgroup if this process does not, because it is stopped
/// itself.
const WATCHDOG: Duration = Duration::from_secs(6);
/// How many bytes a capture takes out of its ring at once.
const MIN_BACKLOG: u64 = 256 << 10;

/// How far a capture may be behind the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The cgroup is frozen above this many bytes that are not safe, and above half of the ring. It
    /// runs again below half of that.
    pub bytes: u64,
    /// The directory of a cgroup of version 2 that contains all processes that write to the tree.
    pub cgroup: PathBuf,
}

impl Bound {
    /// # Errors
    /// [`Error::Input`], [`Error::Freezer`]
    pub fn check(&self) -> Result<(), Error> {
        if self.bytes < MIN_BACKLOG {
            let kib = MIN_BACKLOG >> 10;
            return Err(Error::Input(format!(
                "bounded {} B: at least {kib} KiB, which are read at once",
                self.bytes
            )));
        }
        Ok(Cgroup::open(&self.cgroup).map(drop)?)
    }
}

/// The state and the counters of the back-pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Whether the whole cgroup is stopped now because of the backlog.
    pub frozen: bool,
    /// How many times this was requested, and for how long in total.
    pub freezes: u64,
    pub time: Duration,
    /// Freezes that were ended because they had lasted too long.
    pub expired: u64,
    /// How many times the cgroup was gone.
    pub vanished: u64,
    /// Bytes of changes that are not safe.
    pub lag: u64,
}

/// Freezes and thaws until it is dropped. Dropping it thaws.
#[derive(Debug)]
pub(super) struct Freezer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    told: Mutex<SharedState>,
}

/// The state that other threads read.
#[derive(Clone, Copy, Debug, Default)]
struct SharedState {
    pressure: Pressure,
    /// Since when a freeze has been requested.
    since: Option<Instant>,
}

/// The changes that are not safe yet.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Events that wait to be read.
    pub(super) ring: Gauge,
    /// Bytes that are held back until their file has been read in a consistent state.
    pub(super) held_back: Arc<AtomicU64>,
    /// What the replicas have not acknowledged.
    pub(super) confirmed: Option<Arc<Acknowledgements>>,
}

impl Backlog {
    /// The backlog in bytes, including those in the ring.
    fn bytes(&self, ring: u64) -> u64 {
        let unconfirmed = self.confirmed.as_ref().map(|it| it.unconfirmed());
        let held_back = self.held_back.load(Ordering::Relaxed);
        ring + held_back + unconfirmed.unwrap_or(0)
    }

    fn let_go(&self) {
        if let Some(confirmed) = &self.confirmed {
            confirmed.let_go();
        }
    }
}

impl Freezer {
    /// # Errors
    /// [`Error::Thread`]
    pub(super) fn start(
        bounded: &Bound,
        held: CgroupGuard,
        backlog: Backlog,
    ) -> Result<Self, Error> {
        let shared = Arc::<Shared>::default();
        let looking = Looking {
            path: bounded.cgroup.clone(),
            held: Some(held),
            ring_mark: Mark::new(backlog.ring.size() / 2),
            mark: Mark::new(bounded.bytes),
            backlog,
            since: None,
            searched: Instant::now(),
            others: false,
            owed: false,
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new().name("freezer".to_owned());
        let thread = thread
            .spawn(move || looking.work())
            .map_err(Error::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// # Errors
    /// [`Error::Panicked`]
    pub(super) fn pressure(&self) -> Result<Pressure, Error> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(Error::Panicked);
        }
        let SharedState { pressure, since } = *self.shared.state();
        let now = since.map_or(Duration::ZERO, |since| since.elapsed());
        Ok(Pressure {
            time: pressure.time + now,
            ..pressure
        })
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has printed its message, and has thawed before.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, SharedState> {
        // The state is consistent between any two statements, so a poisoned lock is usable.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cgroup, and the watchdog that thaws it if this process cannot.
#[derive(Debug)]
pub(super) struct CgroupGuard {
    cgroup: Cgroup,
    watchdog: Watchdog,
}

impl CgroupGuard {
    /// The watchdog keeps the memory that this process has now, so call this before that is much.
    ///
    /// # Errors
    /// [`Error::Freezer`], [`Error::Watchdog`]
    pub(super) fn take(path: &Path) -> Result<Self, Error> {
        let cgroup = Cgroup::open(path)?;
        let shown = path.display();
        let failed = |cause| FreezeError::Io {
            path: path.to_owned(),
            cause,
        };
        let asked = cgroup.is_freeze_requested().map_err(failed)?;
        if cgroup.owner().is_some_and(|owner| !owner.alive()) {
            // Also after its watchdog has thawed it, to remove the mark.
            cgroup.thaw().map_err(failed)?;
            if asked {
                tracing::warn!(
                    "cgroup {shown}: a capture that was killed had left it frozen: it runs again"
                );
            }
        } else if asked {
            tracing::warn!("cgroup {shown} is frozen already, by somebody else: it is left so");
        }
        let watchdog = Watchdog::start(cgroup.switch(), THAW, WATCHDOG).map_err(Error::Watchdog)?;
        Ok(Self { cgroup, watchdog })
    }
}

/// The state of the freezer's thread.
#[derive(Debug)]
struct Looking {
    path: PathBuf,
    /// `None` while there is no such cgroup.
    held: Option<CgroupGuard>,
    backlog: Backlog,
    ring_mark: Mark,
    mark: Mark,
    /// When this process requested the freeze, while it does.
    since: Option<Instant>,
    searched: Instant,
    /// Another process has frozen the cgroup, and this was reported.
    others: bool,
    /// A due thaw has failed.
    owed: bool,
    shared: Arc<Shared>,
}

impl Looking {
    fn work(mut self) {
        // The backlog grows within milliseconds while all other processes want the CPU.
        if let Err(error) = sys::sched::fifo(1).or_else(|_| sys::sched::nice(0, -20)) {
            let path = self.path.display();
            tracing::warn!(
                "cgroup {path}: what freezes it has no priority ({error}), and is late on a busy machine: run with \
                 CAP_SYS_NICE, with systemd with RestrictRealtime=no, too"
            );
        }
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.look();
            thread::park_timeout(LOOK);
        }
    }

    fn look(&mut self) {
        let waiting = self.backlog.ring.waiting();
        let lag = self.backlog.bytes(waiting);
        let (by_ring, by_all) = (self.ring_mark.asks(waiting), self.mark.asks(lag));
        if let Err(error) = self.follow(by_ring || by_all, lag) {
            self.lose(&error);
        }
        let told = &mut *self.shared.state();
        (told.since, told.pressure.lag) = (self.since, lag);
    }

    /// Carries out a request as far as possible.
    fn follow(&mut self, asked: bool, lag: u64) -> io::Result<()> {
        let Some(held) = &self.held else {
            return self.search();
        };
        match self.since {
            None if asked => self.freeze(),
            None if self.searched.elapsed() >= SEARCH => {
                self.searched = Instant::now();
                held.cgroup.frozen().map(drop)
            }
            None => Ok(()),
            Some(_) if !asked => self.thaw(),
            Some(since) if since.elapsed() >= MAX_FREEZE => self.expire(lag),
            Some(_) => self.hold(),
        }
    }

    fn freeze(&mut self) -> io::Result<()> {
        let Some(held) = &mut self.held else {
            return Ok(());
        };
        if held.cgroup.is_freeze_requested()? {
            if !std::mem::replace(&mut self.others, true) {
                let path = self.path.display();
                tracing::warn!("cgroup {path} is frozen already, by somebody else: it is left so");
            }
            return Ok(());
        }
        self.others = false;
        if held.watchdog.arm().is_err() {
            // The watchdog was killed.
            held.watchdog = Watchdog::start(held.cgroup.switch(), THAW, WATCHDOG)?;
            held.watchdog.arm()?;
        }
        self.since = Some(Instant::now());
        self.shared.state().pressure.freezes += 1;
        held.cgroup.freeze()?;
        self.hold()
    }

    /// Checks whether the cgroup has stopped, and whether another process has thawed it.
    fn hold(&mut self) -> io::Result<()> {
        let Some(held) = &self.held else {
            return Ok(());
        };
        let frozen = held.cgroup.frozen()?;
        if !held.cgroup.is_freeze_requested()? {
            let path = self.path.display();
            tracing::warn!("cgroup {path}: somebody else has thawed it: it is left so for now");
            self.give_up();
            return self.thaw();
        }
        self.shared.state().pressure.frozen = frozen;
        Ok(())
    }

    fn expire(&mut self, lag: u64) -> io::Result<()> {
        let (path, seconds) = (self.path.display(), MAX_FREEZE.as_secs());
        tracing::warn!(
            "cgroup {path} was frozen for {seconds} s, and {lag} B wait: it runs on, and is frozen again only after \
             half of the bound was reached"
        );
        self.shared.state().pressure.expired += 1;
        self.give_up();
        self.thaw()
    }

    fn give_up(&mut self) {
        self.ring_mark.give_up();
        self.mark.give_up();
        self.backlog.let_go();
    }

    fn thaw(&mut self) -> io::Result<()> {
        let Some(held) = &self.held else {
            return Ok(());
        };
        held.cgroup.thaw()?;
        // A watchdog that was killed is noticed when it is needed.
        let _ = held.watchdog.disarm();
        self.ended();
        Ok(())
    }

    /// Notes that this process no longer stops the cgroup.
    fn ended(&mut self) {
        let told = &mut *self.shared.state();
        told.pressure.frozen = false;
        if let Some(since) = self.since.take() {
            told.pressure.time += since.elapsed();
        }
        told.since = None;
    }

    fn lose(&mut self, error: &io::Error) {
        if self.held.take().is_none() {
            return;
        }
        let path = self.path.display();
        tracing::warn!(
            "cgroup {path} is gone ({error}): nothing is frozen until it is there again"
        );
        self.owed |= self.since.is_some();
        self.ended();
        self.shared.state().pressure.vanished += 1;
        self.searched = Instant::now();
    }

    /// Looks for the cgroup. An application that is restarted has a new one with the same name.
    fn search(&mut self) -> io::Result<()> {
        self.backlog.let_go();
        if self.searched.elapsed() < SEARCH {
            return Ok(());
        }
        self.searched = Instant::now();
        let Ok(held) = CgroupGuard::take(&self.path) else {
            return Ok(());
        };
        if self.owed {
            held.cgroup.thaw()?;
            self.owed = false;
        }
        tracing::warn!("cgroup {} is there again", self.path.display());
        self.held = Some(held);
        Ok(())
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        if self.since.is_some() {
            // If this fails, the watchdog tries it as well.
            let _ = self.thaw();
        }
    }
}
