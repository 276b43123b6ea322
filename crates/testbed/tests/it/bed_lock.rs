//! A lock for tests that count all beds of this process: no other test of it may have one meanwhile.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static BEDS: RwLock<()> = RwLock::new(());

/// For a test that brings beds up and does not count those of others.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    BEDS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that counts beds, or keeps guests for the whole process. Take it before `cleaning::turn`.
pub(crate) fn exclusive() -> RwLockWriteGuard<'static, ()> {
    BEDS.write().unwrap_or_else(PoisonError::into_inner)
}
