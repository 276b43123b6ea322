//! A value that is replaced as a whole while others read it.

use super::sync::{Arc, AtomicU64, Ordering, PoisonError, RwLock, fence};

/// The writer's side.
#[derive(Debug)]
pub struct Publisher<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// The number of times that the value has been replaced.
    version: AtomicU64,
    value: RwLock<Arc<T>>,
}

/// One thread's reference to a version of the value. It holds the memory of that version until it is
/// refreshed.
#[derive(Debug)]
pub struct Snapshot<T> {
    shared: Arc<Shared<T>>,
    version: u64,
    value: Arc<T>,
}

impl<T> Publisher<T> {
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(Arc::new(Shared {
            version: AtomicU64::new(0),
            value: RwLock::new(value.into()),
        }))
    }

    /// Replaces the value and returns the one before, which the last thread that drops it frees.
    /// Readers see the new value before they see anything that is written after this call.
    pub fn publish(&self, value: impl Into<Arc<T>>) -> Arc<T> {
        let value = value.into();
        self.replace(|_| value)
    }

    /// As [`Publisher::publish`], with a value made of the one before; no other is published between.
    pub fn update(&self, change: impl FnOnce(&T) -> T) -> Arc<T> {
        self.replace(|value| Arc::new(change(value)))
    }

    /// The value as it is now.
    pub fn load(&self) -> Arc<T> {
        self.0.read(|value, _| Arc::clone(value))
    }

    /// A snapshot of the value as it is now.
    pub fn snapshot(&self) -> Snapshot<T> {
        let (value, version) = self.0.read(|value, version| (Arc::clone(value), version));
        Snapshot {
            shared: Arc::clone(&self.0),
            version,
            value,
        }
    }

    fn replace(&self, make: impl FnOnce(&Arc<T>) -> Arc<T>) -> Arc<T> {
        let value = self.0.value.write();
        let mut value = value.unwrap_or_else(PoisonError::into_inner);
        let new = make(&value);
        let old = std::mem::replace(&mut *value, new);
        let version = self.0.version.load(Ordering::Relaxed) + 1;
        self.0.version.store(version, Ordering::Relaxed);
        // Orders the version before all that is written from now on; see `Snapshot::is_current`.
        fence(Ordering::Release);
        old
    }
}

impl<T> Shared<T> {
    /// Calls `read` with the value and its version, which stay the latest until it returns.
    fn read<R>(&self, read: impl FnOnce(&Arc<T>, u64) -> R) -> R {
        // The value is replaced in one step, so that a poisoned lock holds a whole one.
        let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
        read(&value, self.version.load(Ordering::Relaxed))
    }
}

impl<T> Snapshot<T> {
    /// Takes the latest version, and returns whether it is a newer one. Only then it takes a lock.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        // The number is only compared: the lock orders the value that it stands for.
        let newer = self.shared.version.load(Ordering::Relaxed) != self.version;
        if newer {
            self.renew();
        }
        newer
    }

    /// The value of this version.
    #[inline]
    pub fn get(&self) -> &T {
        &self.value
    }

    /// Whether all reads of this thread so far came before the next version was published. If not, some
    /// of them may have seen what belongs to that version.
    #[inline]
    pub fn is_current(&self) -> bool {
        // A read that saw something written after `replace` makes this load see its version.
        fence(Ordering::Acquire);
        self.shared.version.load(Ordering::Relaxed) == self.version
    }

    /// Takes the latest version and calls `read` with it. The writer waits until `read` returns.
    pub fn with_current<R>(&mut self, read: impl FnOnce(&T) -> R) -> R {
        let Self {
            shared,
            version,
            value,
        } = self;
        shared.read(|latest, number| {
            *value = Arc::clone(latest);
            *version = number;
            read(latest)
        })
    }

    #[cold]
    fn renew(&mut self) {
        self.with_current(|_| ());
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            version: self.version,
            value: Arc::clone(&self.value),
        }
    }
}
