//! Epochs: a counter that the writer advances, and for each reader the epoch that it has pinned.

use super::sync::{Arc, AtomicU64, Mutex, Ordering, PoisonError, fence};

/// The value of a slot whose reader has pinned nothing: later than every epoch.
const UNPINNED: u64 = u64::MAX;

/// The writer's side. The first epoch is 1.
#[derive(Debug)]
pub struct Domain {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoch: AtomicU64,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// A lower bound of the epochs that one reader's batch looks at. Processors fetch cache lines in
/// pairs, so that two readers' slots never share a pair.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// One thread's way to pin epochs. A clone is for another thread.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
}

/// An epoch is pinned until this is dropped.
#[derive(Debug)]
pub struct Guard<'a> {
    epoch: &'a AtomicU64,
    slot: &'a AtomicU64,
}

impl Domain {
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                epoch: AtomicU64::new(1),
                slots: Mutex::new(Vec::new()),
            }),
        }
    }

    /// A reader of this domain.
    pub fn reader(&self) -> Reader {
        Shared::reader(&self.shared)
    }

    /// The current epoch.
    pub fn epoch(&self) -> u64 {
        // Only the writer stores it.
        self.shared.epoch.load(Ordering::Relaxed)
    }

    /// Begins the next epoch and returns it. Readers that see it also see all that the caller has
    /// written before, so that what was unlinked is free once [`Domain::reached`] returns this epoch.
    pub fn advance(&mut self) -> u64 {
        let epoch = self.epoch() + 1;
        self.shared.epoch.store(epoch, Ordering::Release);
        epoch
    }

    /// The epoch that all readers have reached: those that are pinned now or later see what was
    /// written before it began, and what others read has happened before this call.
    ///
    /// It takes the writer's exclusive reference, because the promise is about what the calling
    /// thread has written.
    pub fn reached(&mut self) -> u64 {
        // Pairs with the fence in `pin`. Either the slot's value is seen here, or that reader sees
        // everything that was written before this fence.
        fence(Ordering::SeqCst);
        let slots = self.shared.slots.lock();
        let slots = slots.unwrap_or_else(PoisonError::into_inner);
        // Acquire: what a reader read until it unpinned comes before what the writer does next.
        let pinned = slots.iter().map(|slot| slot.0.load(Ordering::Acquire));
        pinned.fold(self.epoch(), u64::min)
    }

    /// The readers there are, and those that are gone and not yet forgotten.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.shared.slots.lock().unwrap().len()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    fn reader(shared: &Arc<Self>) -> Reader {
        let slot = Arc::new(Slot(AtomicU64::new(UNPINNED)));
        let slots = shared.slots.lock();
        let mut slots = slots.unwrap_or_else(PoisonError::into_inner);
        // A slot that nobody else holds was that of a reader which has been dropped.
        slots.retain(|slot| Arc::strong_count(slot) > 1);
        slots.push(Arc::clone(&slot));
        drop(slots);
        Reader {
            shared: Arc::clone(shared),
            slot,
        }
    }
}

impl Reader {
    /// Pins the current epoch: what is unlinked from now on stays as it is until the guard is dropped.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        let (epoch, slot) = (&self.shared.epoch, &self.slot.0);
        // An epoch that is over by now does no harm: less is freed meanwhile. Release, because the
        // writer may see this value and never the one that ended the batch before.
        slot.store(epoch.load(Ordering::Relaxed), Ordering::Release);
        // Orders both before all reads of the batch, as an acquiring load would; see `Domain::reached`.
        fence(Ordering::SeqCst);
        Guard { epoch, slot }
    }
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        Shared::reader(&self.shared)
    }
}

impl Guard<'_> {
    /// The latest epoch, which is the pinned one or a later one. All that was written before it began
    /// is seen, and [`Domain::reached`] does not pass it until the guard is dropped.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(UNPINNED, Ordering::Release);
    }
}
