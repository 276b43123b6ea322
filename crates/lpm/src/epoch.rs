//! When memory that readers may still look at can be used again. The writer unlinks a piece and
//! retires it; it is free once every reader that was inside at that moment has left. Readers that do
//! not say when they are inside are waited for by a callback.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The value of a slot whose reader is outside.
const OUTSIDE: u64 = 0;
/// Retired pieces that are worth a grace period, which may take milliseconds.
const GRACE: usize = 1 << 14;

/// Returns when every reader that started before the call has ended, of those that only it knows.
pub(crate) struct Grace(pub(crate) Box<dyn FnMut() + Send + Sync>);

impl Debug for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grace")
    }
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Epochs<T> {
    shared: Arc<Shared>,
    /// What was retired, with the epoch in which it could last be reached.
    retired: VecDeque<(u64, T)>,
    grace: Option<Grace>,
    /// What was last reached before this epoch is out of reach of the readers that `grace` knows.
    passed: u64,
}

#[derive(Debug)]
struct Shared {
    now: AtomicU64,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The epoch in which a reader entered, alone on its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// A reader's side: one thread at a time enters by it.
#[derive(Debug)]
pub(crate) struct Entrance {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
}

/// Inside until dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Slot);

impl<T> Epochs<T> {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            now: AtomicU64::new(OUTSIDE + 1),
            slots: Mutex::default(),
        });
        Self {
            shared,
            retired: VecDeque::new(),
            grace: None,
            passed: u64::MAX,
        }
    }

    /// Pieces retired until now are waited for by `grace` as well.
    pub(crate) fn set_grace(&mut self, grace: Grace) {
        self.grace = Some(grace);
        self.passed = OUTSIDE;
    }

    pub(crate) fn entrance(&self) -> Entrance {
        self.shared.clone().entrance()
    }

    /// Takes what no new reader can reach any more.
    pub(crate) fn retire(&mut self, piece: T) {
        // Sequentially consistent, so that a reader that reads the new epoch also sees what was
        // unlinked before.
        let last = self.shared.now.fetch_add(1, Ordering::SeqCst);
        self.retired.push_back((last, piece));
    }

    /// Number of pieces not yet given back.
    pub(crate) fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Gives back the pieces that no reader can look at any more.
    pub(crate) fn reclaim(&mut self, free: impl FnMut(T)) {
        let waiting = self.retired.len() - self.retired_before(self.passed);
        if waiting >= GRACE {
            self.pass();
        }
        self.free(free);
    }

    /// Gives back all pieces, after waiting for the readers that may look at them. Those are inside
    /// for one batch, so that is microseconds, or a grace period.
    pub(crate) fn wait(&mut self, mut free: impl FnMut(T)) {
        self.pass();
        self.free(&mut free);
        while !self.retired.is_empty() {
            thread::yield_now();
            self.free(&mut free);
        }
    }

    fn free(&mut self, mut free: impl FnMut(T)) {
        let first = self.retired.front();
        if first.is_none_or(|&(last, _)| last >= self.passed) {
            return;
        }
        let free_now = self.retired_before(self.shared.oldest().min(self.passed));
        self.retired
            .drain(..free_now)
            .for_each(|(_, piece)| free(piece));
    }

    /// Waits for the readers that `grace` knows.
    fn pass(&mut self) {
        if let Some(Grace(wait)) = &mut self.grace {
            let now = self.shared.now.load(Ordering::SeqCst);
            fence(Ordering::SeqCst);
            wait();
            self.passed = now;
        }
    }

    fn retired_before(&self, epoch: u64) -> usize {
        self.retired.partition_point(|&(last, _)| last < epoch)
    }
}

impl Shared {
    fn entrance(self: Arc<Self>) -> Entrance {
        let slot = Arc::new(Slot(AtomicU64::new(OUTSIDE)));
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| Arc::strong_count(slot) > 1);
        slots.push(Arc::clone(&slot));
        drop(slots);
        Entrance { shared: self, slot }
    }

    /// The epoch in which the reader entered that is inside for longest, or one not yet begun.
    fn oldest(&self) -> u64 {
        // Pairs with the fence in `enter`: a reader whose entry is not seen here sees everything
        // that was unlinked before.
        fence(Ordering::SeqCst);
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = slots
            .iter()
            .map(|slot| slot.0.load(Ordering::Acquire))
            .filter(|&entered| entered != OUTSIDE);
        inside.min().unwrap_or(u64::MAX)
    }
}

impl Entrance {
    pub(crate) fn enter(&mut self) -> Inside<'_> {
        let now = self.shared.now.load(Ordering::Acquire);
        self.slot.0.store(now, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Inside(&self.slot)
    }
}

impl Clone for Entrance {
    fn clone(&self) -> Self {
        Arc::clone(&self.shared).entrance()
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.store(OUTSIDE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_a_reader_may_still_see() {
        let mut epochs = Epochs::new();
        let mut early = epochs.entrance();
        let inside = early.enter();
        epochs.retire(1);
        let mut late = epochs.entrance();
        let later = late.enter();
        let mut freed = Vec::new();
        epochs.reclaim(|piece| freed.push(piece));
        assert_eq!((freed.len(), epochs.waiting()), (0, 1));
        drop(inside);
        epochs.reclaim(|piece| freed.push(piece));
        assert_eq!(freed, [1], "the later reader cannot have seen it");
        drop(later);
    }

    #[test]
    fn asks_for_a_grace_period_when_many_wait() {
        let periods = Arc::new(AtomicU64::new(0));
        let mut epochs = Epochs::new();
        let counted = Arc::clone(&periods);
        epochs.set_grace(Grace(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })));
        let mut freed = 0;
        for _ in 1..GRACE {
            epochs.retire(());
            epochs.reclaim(|()| freed += 1);
        }
        assert_eq!((freed, periods.load(Ordering::Relaxed)), (0, 0));
        epochs.retire(());
        epochs.reclaim(|()| freed += 1);
        assert_eq!((freed, periods.load(Ordering::Relaxed)), (GRACE, 1));
        epochs.retire(());
        epochs.wait(|()| freed += 1);
        assert_eq!((freed, periods.load(Ordering::Relaxed)), (GRACE + 1, 2));
    }

    #[test]
    fn a_grace_period_does_not_end_a_batch() {
        let mut epochs = Epochs::new();
        epochs.set_grace(Grace(Box::new(|| ())));
        let mut reader = epochs.entrance();
        let inside = reader.enter();
        (0..GRACE).for_each(|piece| epochs.retire(piece));
        epochs.reclaim(|_| panic!("the reader may still look at it"));
        drop(inside);
        epochs.reclaim(|_| ());
        assert_eq!(epochs.waiting(), 0);
    }

    #[test]
    fn forgets_readers_that_are_gone() {
        let epochs = Epochs::<()>::new();
        for _ in 0..10 {
            drop(epochs.entrance());
        }
        let kept = epochs.entrance();
        assert_eq!(kept.shared.slots.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_reader_of_its_own_copy() {
        let mut epochs = Epochs::new();
        let mut one = epochs.entrance();
        let mut two = one.clone();
        let first = one.enter();
        epochs.retire(());
        drop(two.enter());
        drop(first);
        epochs.wait(|()| ());
        assert_eq!(epochs.waiting(), 0);
    }
}
