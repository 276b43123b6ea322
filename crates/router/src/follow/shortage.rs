//! Prefixes that the plane has no room for, and what keeps the prefixes around them from answering in their place.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet};
use lpm::{Address, Prefix};

#[derive(Debug)]
pub(super) struct Shortage<A: Address> {
    missing: BTreeMap<Prefix<A>, Shelter<A>>,
    /// Prefixes that lead to the kernel in the place of others, and of how many.
    stand_ins: HashMap<Prefix<A>, usize>,
    /// How many are [`Shelter::None`].
    exposed: usize,
    /// Prefixes that found no number for their next hop, and lead to the kernel for that.
    numberless: HashSet<Prefix<A>>,
}

/// What becomes of packets to a prefix that the plane has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shelter<A: Address> {
    /// No prefix around it is in the plane: they are the kernel's.
    Open,
    /// This prefix leads to the kernel.
    Behind(Prefix<A>),
    /// Others answer for it.
    None,
}

impl<A: Address> Shortage<A> {
    pub(super) fn new() -> Self {
        Self {
            missing: BTreeMap::new(),
            stand_ins: HashMap::new(),
            exposed: 0,
            numberless: HashSet::default(),
        }
    }

    /// Prefixes that the plane has no room for, and those without a number.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.missing.len(), self.numberless.len())
    }

    /// Whether others answer for a prefix.
    pub(super) fn is_exposed(&self) -> bool {
        self.exposed > 0
    }

    /// Whether a prefix leads to the kernel in the place of others.
    pub(super) fn is_stand_in(&self, prefix: Prefix<A>) -> bool {
        self.stand_ins.contains_key(&prefix)
    }

    pub(super) fn add_stand_in(&mut self, prefix: Prefix<A>) {
        *self.stand_ins.entry(prefix).or_default() += 1;
    }

    /// Whether nothing needs it any more.
    pub(super) fn remove_stand_in(&mut self, prefix: Prefix<A>) -> bool {
        let Some(uses) = self.stand_ins.get_mut(&prefix) else {
            return false;
        };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        self.stand_ins.remove(&prefix);
        true
    }

    /// Notes a prefix that the plane has not; a stand-in of its is counted already.
    pub(super) fn add(&mut self, prefix: Prefix<A>, shelter: Shelter<A>) {
        self.exposed += usize::from(shelter == Shelter::None);
        self.missing.insert(prefix, shelter);
    }

    /// Forgets a prefix; its stand-in stays counted.
    pub(super) fn take(&mut self, prefix: Prefix<A>) -> Option<Shelter<A>> {
        let shelter = self.missing.remove(&prefix)?;
        self.exposed -= usize::from(shelter == Shelter::None);
        Some(shelter)
    }

    /// Prefixes longer than this one, and within it, that the plane has not.
    pub(super) fn within(&self, prefix: Prefix<A>) -> Vec<Prefix<A>> {
        if self.missing.is_empty() {
            return Vec::new();
        }
        let last = prefix.last();
        let from = self.missing.range(prefix..).map(|(inner, _)| *inner);
        from.take_while(|inner| inner.first() <= last)
            .filter(|inner| inner.len() > prefix.len())
            .collect()
    }

    pub(super) fn all(&self) -> Vec<Prefix<A>> {
        self.missing.keys().copied().collect()
    }

    pub(super) fn add_numberless(&mut self, prefix: Prefix<A>) {
        self.numberless.insert(prefix);
    }

    pub(super) fn take_numberless(&mut self) -> Vec<Prefix<A>> {
        self.numberless.drain().collect()
    }
}
