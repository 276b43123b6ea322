//! Loom's primitives in place of the standard library's, as they are and weakened.

/// As they are.
pub(crate) mod sound {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Mutex, RwLock};
    pub(crate) use loom::thread::yield_now;
    pub(crate) use std::sync::PoisonError;
}

/// Fences do nothing.
pub(crate) mod no_fence {
    pub(crate) use super::sound::{
        Arc, AtomicU64, Mutex, Ordering, PoisonError, RwLock, yield_now,
    };

    pub(crate) fn fence(_: Ordering) {}
}

/// Fences that should be sequentially consistent order no store before a later load.
pub(crate) mod weak_fence {
    pub(crate) use super::sound::{
        Arc, AtomicU64, Mutex, Ordering, PoisonError, RwLock, yield_now,
    };

    pub(crate) fn fence(order: Ordering) {
        let weaker = match order {
            Ordering::SeqCst => Ordering::AcqRel,
            order => order,
        };
        super::sound::fence(weaker);
    }
}

/// Stores publish nothing that was written before.
pub(crate) mod relaxed_store {
    pub(crate) use super::sound::{Arc, Mutex, Ordering, PoisonError, RwLock, fence, yield_now};

    #[derive(Debug)]
    pub(crate) struct AtomicU64(super::sound::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(super::sound::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u64, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

/// Loads order nothing that is read after.
pub(crate) mod relaxed_load {
    pub(crate) use super::sound::{Arc, Mutex, Ordering, PoisonError, RwLock, fence, yield_now};

    #[derive(Debug)]
    pub(crate) struct AtomicU64(super::sound::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(super::sound::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, _: Ordering) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
        }
    }
}
