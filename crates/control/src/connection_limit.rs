//! Limits the number of connections served at a time. When one more comes, the connection that has been
//! idle for longest is evicted, so that an incomplete request does not block others for long.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::serve::Limits;

/// The permits of a server's connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    limit: usize,
    /// How long a connection may be idle while others wait for a permit.
    eviction_delay: Duration,
    state: Mutex<State>,
    /// A permit has been returned, or a connection can be evicted.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    next: u64,
    /// Clients that owe a request, or have an answer to read. The longest idle is first.
    idle: BTreeMap<u64, IdleClient>,
}

#[derive(Debug)]
struct IdleClient {
    since: Instant,
    evict: Arc<Notify>,
}

/// When to try again after all permits are in use.
enum Retry {
    OnChange,
    At(Instant),
}

impl ConnectionLimit {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            limit: limits.clients,
            eviction_delay: limits.eviction_delay,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Waits for a permit for a client that is connected. Busy connections keep theirs.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Permit {
        loop {
            let changed = self.changed.notified();
            match self.try_acquire() {
                Ok(permit) => return permit,
                Err(Retry::OnChange) => changed.await,
                Err(Retry::At(time)) => {
                    // The time limit ends the wait if no permit is released; both lead to another try.
                    let _ = timeout_at(time, changed).await;
                }
            }
        }
    }

    /// Evicts an idle connection if all permits are in use.
    fn try_acquire(self: &Arc<Self>) -> Result<Permit, Retry> {
        let mut state = self.state();
        if state.in_use >= self.limit {
            let Some(oldest) = state.idle.first_entry() else {
                return Err(Retry::OnChange);
            };
            let time = oldest.get().since + self.eviction_delay;
            if Instant::now() < time {
                return Err(Retry::At(time));
            }
            oldest.remove().evict.notify_one();
            return Err(Retry::OnChange);
        }
        state.in_use += 1;
        drop(state);
        let permit = Permit {
            connections: Arc::clone(self),
            evict: Arc::new(Notify::new()),
            key: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
        };
        permit.wait();
        Ok(permit)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a connection be served. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Permit {
    connections: Arc<ConnectionLimit>,
    evict: Arc<Notify>,
    /// Its key among the idle clients.
    key: AtomicU64,
    is_busy: AtomicBool,
}

impl Permit {
    /// Carries out a request. Meanwhile the connection is not evicted.
    pub(crate) async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        self.is_busy.store(true, Ordering::Relaxed);
        let key = self.key.load(Ordering::Relaxed);
        if self.connections.state().idle.remove(&key).is_none() {
            // It was evicted when its request came. It ends later, so another is evicted now.
            self.connections.changed.notify_one();
        }
        let result = work.await;
        self.is_busy.store(false, Ordering::Relaxed);
        self.wait();
        result
    }

    /// Whether a request is being carried out.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    /// Returns when the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// The result of `wait`, or `None` if the connection is evicted before.
    pub(crate) async fn unless_evicted<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = wait => Some(result),
            () = self.evicted() => None,
        }
    }

    fn wait(&self) {
        let mut state = self.connections.state();
        let key = state.next;
        state.next += 1;
        if state.idle.is_empty() {
            self.connections.changed.notify_one();
        }
        let idle = IdleClient {
            since: Instant::now(),
            evict: Arc::clone(&self.evict),
        };
        state.idle.insert(key, idle);
        self.key.store(key, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.idle.remove(self.key.get_mut());
        state.in_use -= 1;
        self.connections.changed.notify_one();
    }
}
