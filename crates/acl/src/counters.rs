//! Packets and bytes of each rule, apart from the rules themselves: lookups touch no counter's
//! memory, and each thread has its own.

use crate::rule::NONE;

/// The packets and bytes that one rule, or none, has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// The counts of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    rules: Vec<Count>,
    unmatched: Count,
}

impl Counters {
    /// All zero, for a list of this many rules.
    pub fn new(rules: usize) -> Self {
        Self {
            rules: vec![Count::default(); rules],
            unmatched: Count::default(),
        }
    }

    /// Counts a batch: the rule of each packet as lookups write it, and the packet's bytes. Indices
    /// beyond the list count as unmatched.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn add(&mut self, found: &[u32], bytes: &[u32]) {
        assert!(found.len() == bytes.len(), "one length for each packet");
        for (&rule, &bytes) in found.iter().zip(bytes) {
            let count = self.rules.get_mut(rule as usize);
            let count = count.unwrap_or(&mut self.unmatched);
            count.packets += 1;
            count.bytes += u64::from(bytes);
        }
    }

    /// The packets and bytes that a rule, or [`NONE`], has matched.
    pub fn get(&self, rule: u32) -> Count {
        if rule == NONE {
            return self.unmatched;
        }
        self.rules.get(rule as usize).copied().unwrap_or_default()
    }

    /// Adds another thread's counts, of the same list.
    pub fn merge(&mut self, other: &Self) {
        let theirs = other.rules.iter().chain([&other.unmatched]);
        for (count, other) in self
            .rules
            .iter_mut()
            .chain([&mut self.unmatched])
            .zip(theirs)
        {
            count.packets += other.packets;
            count.bytes += other.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_bytes_are_counted_by_rule_and_added_up() {
        let mut one = Counters::new(2);
        one.add(&[1, NONE, 1], &[60, 100, 40]);
        let mut sum = Counters::new(2);
        sum.add(&[0], &[64]);
        sum.merge(&one);
        let count = |packets, bytes| Count { packets, bytes };
        assert_eq!(sum.get(0), count(1, 64));
        assert_eq!(sum.get(1), count(2, 100));
        assert_eq!(sum.get(NONE), count(1, 100));
    }
}
