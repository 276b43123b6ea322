//! Which update each reader's batch answers from: what it needs is not taken out of chains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The time of a reader between batches.
const RESTS: u64 = u64::MAX;
/// Updates between looks at the readers' moments, each of which may be a cache miss.
const RARELY: u32 = 16;

/// Where one reader says at least which update its batch answers from. A cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Place(AtomicU64);

/// A reader's.
#[derive(Debug)]
pub(super) struct Moment(Arc<Place>);

/// All readers'.
#[derive(Debug, Default)]
pub(super) struct Moments {
    places: Vec<Arc<Place>>,
    /// All batches under way answer from this update or a later one.
    reached: u64,
    since: u32,
}

impl Moment {
    /// Begins a batch: the latest update there is, of which nothing is taken out until the end.
    pub(super) fn begin(&self, time: &AtomicU64) -> u64 {
        self.0
            .0
            .store(time.load(Ordering::Acquire), Ordering::Relaxed);
        // Either the writer sees this moment, or the batch sees the time at which the writer looked.
        fence(Ordering::SeqCst);
        time.load(Ordering::Acquire)
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.0.0.store(RESTS, Ordering::Release);
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        // A batch may have ended in a panic.
        self.end();
    }
}

impl Moments {
    /// One more reader.
    pub(super) fn add(&mut self) -> Moment {
        self.places.retain(|place| Arc::strong_count(place) > 1);
        let place = Arc::new(Place(AtomicU64::new(RESTS)));
        self.places.push(Arc::clone(&place));
        Moment(place)
    }

    /// As of the last look.
    pub(super) fn reached(&self) -> u64 {
        self.reached
    }

    /// Looks, now and then, at what readers have reached when `time` is the latest update, which they
    /// can see.
    pub(super) fn look(&mut self, time: u64) {
        self.since += 1;
        if self.since < RARELY {
            return;
        }
        self.since = 0;
        fence(Ordering::SeqCst);
        let moments = self
            .places
            .iter()
            .map(|place| place.0.load(Ordering::Acquire));
        self.reached = moments.min().unwrap_or(RESTS).min(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_batch_may_need_is_not_reached() {
        let time = AtomicU64::new(5);
        let mut moments = Moments::default();
        let (one, other) = (moments.add(), moments.add());
        let look = |moments: &mut Moments, time| (0..RARELY).for_each(|_| moments.look(time));
        assert_eq!(one.begin(&time), 5);
        time.store(9, Ordering::Release);
        look(&mut moments, 9);
        assert_eq!(moments.reached(), 5);
        assert_eq!(other.begin(&time), 9);
        one.end();
        time.store(12, Ordering::Release);
        look(&mut moments, 12);
        assert_eq!(moments.reached(), 9);
        other.end();
        look(&mut moments, 12);
        assert_eq!(moments.reached(), 12);
    }
}
