//! Hands out runs of 2^n places of an array, and takes them back.

use crate::Error;

/// Runs are at most 2^24 places.
const ORDERS: usize = 25;

#[derive(Debug)]
pub(super) struct Runs {
    what: &'static str,
    /// Free runs, by the logarithm of their length.
    free: [Vec<u32>; ORDERS],
    /// The first place never handed out.
    next: usize,
    capacity: usize,
    used: usize,
}

impl Runs {
    pub(super) fn new(what: &'static str, capacity: usize) -> Self {
        Self {
            what,
            free: [const { Vec::new() }; ORDERS],
            next: 0,
            capacity,
            used: 0,
        }
    }

    /// The first place of a run of 2^`order`.
    pub(super) fn take(&mut self, order: u32) -> Result<u32, Error> {
        let full = Error::Full { what: self.what };
        let Some(free) = self.free.get_mut(order as usize) else {
            return Err(full);
        };
        let at = match free.pop() {
            Some(at) => at,
            None if self.next + (1 << order) <= self.capacity => {
                self.next += 1 << order;
                u32::try_from(self.next - (1 << order)).map_err(|_| full)?
            }
            None => self.split(order).ok_or(full)?,
        };
        self.used += 1 << order;
        Ok(at)
    }

    pub(super) fn give(&mut self, at: u32, order: u32) {
        self.used -= 1 << order;
        self.free[order as usize].push(at);
    }

    /// Places handed out.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The first part of a longer free run, the rest of which stays free.
    fn split(&mut self, order: u32) -> Option<u32> {
        let longer = (order as usize + 1..ORDERS).find(|&order| !self.free[order].is_empty())?;
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
    fn uses_again_what_was_given_back() {
        let mut runs = Runs::new("places", 16);
        let all: Vec<_> = (0..4).map(|_| runs.take(2).unwrap()).collect();
        assert_eq!((all, runs.used()), (vec![0, 4, 8, 12], 16));
        assert!(matches!(runs.take(0), Err(Error::Full { what: "places" })));
        runs.give(8, 2);
        let mut parts = [1, 0, 0].map(|order| runs.take(order).unwrap());
        parts.sort_unstable();
        assert_eq!(parts, [8, 10, 11]);
        assert!(runs.take(0).is_err());
        assert!(runs.take(40).is_err());
    }
}
