//! A buddy allocator: runs of 2^n places of an array.

use crate::Error;

/// Runs are at most 2^24 places.
const ORDERS: usize = 25;

#[derive(Debug)]
pub(super) struct BuddyAllocator {
    what: &'static str,
    /// Free runs, by the logarithm of their length.
    free: [Vec<u32>; ORDERS],
    /// The first place that was never allocated.
    next: usize,
    capacity: usize,
    used: usize,
}

impl BuddyAllocator {
    pub(super) fn new(what: &'static str, capacity: usize) -> Self {
        Self {
            what,
            free: [const { Vec::new() }; ORDERS],
            next: 0,
            capacity,
            used: 0,
        }
    }

    /// The first place of a run of 2^`order`, which is a multiple of that.
    pub(super) fn allocate(&mut self, order: u32) -> Result<u32, Error> {
        let full = Error::Full { what: self.what };
        let Some(free) = self.free.get_mut(order as usize) else {
            return Err(full);
        };
        let at = match free.pop() {
            Some(at) => Some(at),
            None => self.extend(order).or_else(|| self.split(order)),
        };
        let at = at.or_else(|| {
            self.merge();
            self.split(order)
        });
        self.used += 1 << order;
        at.ok_or_else(|| {
            self.used -= 1 << order;
            full
        })
    }

    pub(super) fn free(&mut self, at: u32, order: u32) {
        self.used -= 1 << order;
        self.free[order as usize].push(at);
    }

    /// Number of allocated places.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Number of places before the first one that was never allocated.
    pub(super) fn high_water_mark(&self) -> usize {
        self.next
    }

    /// Allocates a run behind the high-water mark. Alignment may leave free places before it.
    fn extend(&mut self, order: u32) -> Option<u32> {
        let start = self.next.next_multiple_of(1 << order);
        if start + (1 << order) > self.capacity {
            return None;
        }
        while self.next < start {
            let order = self.next.trailing_zeros();
            self.free[order as usize].push(u32::try_from(self.next).ok()?);
            self.next += 1 << order;
        }
        self.next += 1 << order;
        u32::try_from(start).ok()
    }

    /// Makes longer runs of free ones that lie side by side.
    fn merge(&mut self) {
        for order in 0..ORDERS - 1 {
            let mut runs = std::mem::take(&mut self.free[order]);
            runs.sort_unstable();
            let mut rest = &runs[..];
            while let &[at, ref after @ ..] = rest {
                rest = after;
                let buddy = at ^ 1 << order;
                if at < buddy && rest.first() == Some(&buddy) {
                    self.free[order + 1].push(at);
                    rest = &rest[1..];
                } else {
                    self.free[order].push(at);
                }
            }
        }
    }

    /// The first part of a free run, the rest of which stays free.
    fn split(&mut self, order: u32) -> Option<u32> {
        let longer = (order as usize..ORDERS).find(|&order| !self.free[order].is_empty())?;
        let at = self.free[longer].pop()?;
        for rest in order as usize..longer {
            self.free[rest].push(at + (1 << rest));
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_runs_are_reused() {
        let mut runs = BuddyAllocator::new("places", 16);
        let all: Vec<_> = (0..4).map(|_| runs.allocate(2).unwrap()).collect();
        assert_eq!((all, runs.used()), (vec![0, 4, 8, 12], 16));
        assert!(matches!(
            runs.allocate(0),
            Err(Error::Full { what: "places" })
        ));
        runs.free(8, 2);
        let mut parts = [1, 0, 0].map(|order| runs.allocate(order).unwrap());
        parts.sort_unstable();
        assert_eq!(parts, [8, 10, 11]);
        assert!(runs.allocate(0).is_err());
        assert!(runs.allocate(40).is_err());
    }

    #[test]
    fn free_neighbours_become_one() {
        let mut runs = BuddyAllocator::new("places", 16);
        let all: Vec<_> = (0..16).map(|_| runs.allocate(0).unwrap()).collect();
        for &at in all.iter().filter(|&&at| at != 5) {
            runs.free(at, 0);
        }
        assert_eq!(runs.allocate(3).unwrap(), 8);
        assert_eq!(runs.allocate(2).unwrap(), 0);
        assert!(runs.allocate(2).is_err(), "place 5 is in use");
        assert_eq!(runs.allocate(1).unwrap(), 6);
        assert_eq!((runs.allocate(0).unwrap(), runs.used()), (4, 16));
    }

    #[test]
    fn runs_begin_at_multiples_of_their_length() {
        let mut runs = BuddyAllocator::new("places", 16);
        let taken = [0, 2, 0, 1].map(|order| runs.allocate(order).unwrap());
        assert_eq!(taken, [0, 4, 1, 2]);
    }
}
