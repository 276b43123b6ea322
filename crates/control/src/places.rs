//! How many clients are served at a time. When one more comes than there is room for, the one that
//! has kept the server waiting for longest leaves: half a request holds up nobody for long.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::serve::Limits;

/// A server's places.
#[derive(Debug)]
pub(crate) struct Places {
    limit: usize,
    /// How long a client may keep the server waiting while others need its place.
    patience: Duration,
    state: Mutex<State>,
    /// A place has become free, or may be asked for.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    next: u64,
    /// Clients that owe a request, or have an answer to read, since the longest first.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    asked: Arc<Notify>,
}

/// Why there is no place, and when to look again if nothing changes before.
enum Full {
    UntilChanged,
    Until(Instant),
}

impl Places {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            limit: limits.clients,
            patience: limits.patience,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A place for a client that is there already. Clients that are being served keep theirs.
    pub(crate) async fn take(self: &Arc<Self>) -> Place {
        loop {
            let changed = self.changed.notified();
            match self.try_take() {
                Ok(place) => return place,
                Err(Full::UntilChanged) => changed.await,
                Err(Full::Until(time)) => {
                    // That nothing has changed until then is no error.
                    let _ = timeout_at(time, changed).await;
                }
            }
        }
    }

    /// Where there is no place, asks a client to leave.
    fn try_take(self: &Arc<Self>) -> Result<Place, Full> {
        let mut state = self.state();
        if state.taken >= self.limit {
            let Some(oldest) = state.waiting.first_entry() else {
                return Err(Full::UntilChanged);
            };
            let time = oldest.get().since + self.patience;
            if Instant::now() < time {
                return Err(Full::Until(time));
            }
            oldest.remove().asked.notify_one();
            return Err(Full::UntilChanged);
        }
        state.taken += 1;
        drop(state);
        let place = Place {
            places: Arc::clone(self),
            asked: Arc::new(Notify::new()),
            turn: AtomicU64::new(0),
            works: AtomicBool::new(false),
        };
        place.wait();
        Ok(place)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's place. Dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    asked: Arc<Notify>,
    /// Its key while it waits.
    turn: AtomicU64,
    works: AtomicBool,
}

impl Place {
    /// Carries out a request: meanwhile nobody is asked to leave for being slow.
    pub(crate) async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        self.works.store(true, Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed);
        if self.places.state().waiting.remove(&turn).is_none() {
            // Asked to leave as its request came: it leaves later, and another now.
            self.places.changed.notify_one();
        }
        let result = work.await;
        self.works.store(false, Ordering::Relaxed);
        self.wait();
        result
    }

    /// Whether a request is being carried out.
    pub(crate) fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Returns when the client must leave.
    pub(crate) async fn asked_to_leave(&self) {
        self.asked.notified().await;
    }

    /// What comes of `wait`, or nothing when the client must leave before.
    pub(crate) async fn unless_asked<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = wait => Some(result),
            () = self.asked_to_leave() => None,
        }
    }

    fn wait(&self) {
        let mut state = self.places.state();
        let turn = state.next;
        state.next += 1;
        if state.waiting.is_empty() {
            self.places.changed.notify_one();
        }
        let waiting = Waiting {
            since: Instant::now(),
            asked: Arc::clone(&self.asked),
        };
        state.waiting.insert(turn, waiting);
        self.turn.store(turn, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.waiting.remove(self.turn.get_mut());
        state.taken -= 1;
        self.places.changed.notify_one();
    }
}
