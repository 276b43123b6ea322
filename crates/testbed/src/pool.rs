//! Instances that outlive a bed: those that start slowly stay for the next bed that wants the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many [`crate::InstancePool`]s there are.
static HOLDERS: Mutex<usize> = Mutex::new(0);

/// From now on, pools keep what is put into them.
pub(crate) fn hold() {
    *lock(&HOLDERS) += 1;
}

/// Undoes one [`hold`]. If it was the last, `empty` takes everything out of the pools, and what it returns is returned:
/// nothing is put into a pool between the two.
pub(crate) fn release<T>(empty: impl FnOnce() -> T) -> Option<T> {
    let mut holders = lock(&HOLDERS);
    *holders -= 1;
    (*holders == 0).then(empty)
}

/// Whether pools keep what is put into them.
pub(crate) fn is_held() -> bool {
    *lock(&HOLDERS) > 0
}

/// Instances of one kind that wait for a bed.
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Keeps an instance while pools are held; drops it otherwise.
    pub(crate) fn put(&self, instance: T) {
        let holders = lock(&HOLDERS);
        if *holders > 0 {
            lock(&self.0).push(instance);
        } else {
            drop(holders);
            drop(instance);
        }
    }

    /// Takes out an instance that fits.
    pub(crate) fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut instances = lock(&self.0);
        let place = instances.iter().position(fits)?;
        Some(instances.swap_remove(place))
    }

    /// Takes out all instances that fit.
    pub(crate) fn take_all(&self, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let fits = |instance: &mut T| fits(instance);
        lock(&self.0).extract_if(.., fits).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
