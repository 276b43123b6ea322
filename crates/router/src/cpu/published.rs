//! A value that one thread replaces while others read it: each reader looks at a number whether
//! there is another one, and takes a lock only then.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The writer's side.
#[derive(Debug)]
pub(super) struct Published<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// How often the value has been replaced.
    stamp: AtomicU64,
    value: Mutex<Arc<T>>,
}

/// A reader's side, for one thread.
#[derive(Debug)]
pub(super) struct Follower<T> {
    shared: Arc<Shared<T>>,
    stamp: u64,
    value: Arc<T>,
}

impl<T> Published<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            stamp: AtomicU64::new(0),
            value: Mutex::new(Arc::new(value)),
        }))
    }

    /// Readers see the value that `change` makes before they see anything written after this.
    pub(super) fn change(&self, change: impl FnOnce(&T) -> T) {
        let mut value = self.0.lock();
        *value = Arc::new(change(&value));
        self.0.stamp.fetch_add(1, Ordering::Release);
        // What is written from now on is seen by nobody who does not see the stamp: see `is_latest`.
        fence(Ordering::Release);
    }

    /// As it is now.
    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.lock())
    }

    pub(super) fn follow(&self) -> Follower<T> {
        let value = self.0.lock();
        Follower {
            shared: Arc::clone(&self.0),
            stamp: self.0.stamp.load(Ordering::Relaxed),
            value: Arc::clone(&value),
        }
    }
}

impl<T> Follower<T> {
    /// The latest value, which stays `value` until the next call.
    #[inline]
    pub(super) fn refresh(&mut self) -> &T {
        self.renew();
        &self.value
    }

    /// Takes the latest value; whether it is another one.
    #[inline]
    pub(super) fn renew(&mut self) -> bool {
        let other = self.shared.stamp.load(Ordering::Acquire) != self.stamp;
        if other {
            let value = self.shared.lock();
            self.value = Arc::clone(&value);
            self.stamp = self.shared.stamp.load(Ordering::Relaxed);
        }
        other
    }

    #[inline]
    pub(super) fn value(&self) -> &T {
        &self.value
    }

    /// Whether `value` was the latest when everything before was read.
    #[inline]
    pub(super) fn is_latest(&self) -> bool {
        fence(Ordering::Acquire);
        self.shared.stamp.load(Ordering::Relaxed) == self.stamp
    }

    /// Reads with the latest value, which nobody replaces meanwhile.
    pub(super) fn while_held<R>(&mut self, read: impl FnOnce(&T) -> R) -> R {
        let value = self.shared.lock();
        self.value = Arc::clone(&value);
        self.stamp = self.shared.stamp.load(Ordering::Relaxed);
        read(&value)
    }
}

impl<T> Clone for Follower<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            stamp: self.stamp,
            value: Arc::clone(&self.value),
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        // The value is replaced in one step.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
