//! Instances that outlive a bed: who starts slowly waits for the next bed that wants one alike.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::environment::{self, Container};
use crate::vm::{self, Machine};

static HOLDERS: Mutex<usize> = Mutex::new(0);

/// While one is held, virtual machines and engines' containers wait for the next bed when theirs is dropped.
/// They end with the last that is held, and those that start quickly with [`Kept::end_of_block`].
#[derive(Debug)]
pub struct Kept(());

impl Kept {
    pub fn new() -> Self {
        *lock(&HOLDERS) += 1;
        Self(())
    }

    /// Ends what waits, so that the next block has others. Machines that are emulated stay: they take seconds to
    /// boot, and nothing is compared with them.
    pub fn end_of_block(&self) {
        let machines = vm::WAITING.empty(Machine::is_fast);
        end(machines, environment::WAITING.empty(|_| true));
    }
}

/// Ends them all at once: each engine has to be waited for.
fn end(machines: Vec<Machine>, containers: Vec<Container>) {
    thread::scope(|scope| {
        for machine in machines {
            scope.spawn(|| drop(machine));
        }
        for container in containers {
            scope.spawn(|| drop(container));
        }
    });
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut holders = lock(&HOLDERS);
        *holders -= 1;
        if *holders == 0 {
            let machines = vm::WAITING.empty(|_| true);
            let containers = environment::WAITING.empty(|_| true);
            let images = environment::IMAGES.empty(|_| true);
            drop(holders);
            end(machines, containers);
            // Engines refuse while containers are made of them.
            drop(images);
        }
    }
}

/// Whether anybody would keep what a bed has no use for any more.
pub(crate) fn wanted() -> bool {
    *lock(&HOLDERS) > 0
}

/// Those of a kind that wait.
pub(crate) struct Waiting<T>(Mutex<Vec<T>>);

impl<T> Waiting<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Keeps one, if it is wanted; else it ends here.
    pub(crate) fn keep(&self, one: T) {
        let holders = lock(&HOLDERS);
        if *holders > 0 {
            lock(&self.0).push(one);
        } else {
            drop(holders);
            drop(one);
        }
    }

    pub(crate) fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut waiting = lock(&self.0);
        let place = waiting.iter().position(fits)?;
        Some(waiting.swap_remove(place))
    }

    fn empty(&self, of: impl Fn(&T) -> bool) -> Vec<T> {
        lock(&self.0).extract_if(.., |one| of(one)).collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
