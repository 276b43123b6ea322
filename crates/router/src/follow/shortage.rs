//! Prefixes that the plane has no room for, and the entries that punt their packets to the kernel instead.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet};
use lpm::{Address, Prefix};

#[derive(Debug)]
pub(super) struct Shortage<A: Address> {
    missing: BTreeMap<Prefix<A>, Fallback<A>>,
    /// Prefixes whose entries punt, and for how many missing prefixes.
    punt_entries: HashMap<Prefix<A>, usize>,
    /// How many are [`Fallback::Unavailable`].
    unavailable: usize,
    /// Prefixes that found no number for their next hop, and lead to the kernel for that.
    without_number: HashSet<Prefix<A>>,
}

/// What the plane does with packets to a prefix that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fallback<A: Address> {
    /// No other prefix covers them, so that they are punted.
    Uncovered,
    /// The entry of this prefix punts them.
    PuntEntry(Prefix<A>),
    /// A covering prefix answers for them, and has no room for an entry that punts.
    Unavailable,
}

impl<A: Address> Shortage<A> {
    pub(super) fn new() -> Self {
        Self {
            missing: BTreeMap::new(),
            punt_entries: HashMap::new(),
            unavailable: 0,
            without_number: HashSet::default(),
        }
    }

    /// Prefixes that the plane has no room for, and those without a number.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.missing.len(), self.without_number.len())
    }

    /// Whether a covering prefix answers for one.
    pub(super) fn has_unavailable(&self) -> bool {
        self.unavailable > 0
    }

    /// Whether the entry of a prefix punts.
    pub(super) fn is_punt_entry(&self, prefix: Prefix<A>) -> bool {
        self.punt_entries.contains_key(&prefix)
    }

    pub(super) fn add_punt_entry(&mut self, prefix: Prefix<A>) {
        *self.punt_entries.entry(prefix).or_default() += 1;
    }

    /// Whether nothing needs it any more.
    pub(super) fn remove_punt_entry(&mut self, prefix: Prefix<A>) -> bool {
        let Some(uses) = self.punt_entries.get_mut(&prefix) else {
            return false;
        };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        self.punt_entries.remove(&prefix);
        true
    }

    /// Adds a prefix that the plane does not have. The entry that punts for it is counted already.
    pub(super) fn add(&mut self, prefix: Prefix<A>, fallback: Fallback<A>) {
        self.unavailable += usize::from(fallback == Fallback::Unavailable);
        self.missing.insert(prefix, fallback);
    }

    /// Removes a prefix. The entry that punts for it stays counted.
    pub(super) fn take(&mut self, prefix: Prefix<A>) -> Option<Fallback<A>> {
        let fallback = self.missing.remove(&prefix)?;
        self.unavailable -= usize::from(fallback == Fallback::Unavailable);
        Some(fallback)
    }

    /// The missing prefixes that are longer than this one and within it.
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

    pub(super) fn add_without_number(&mut self, prefix: Prefix<A>) {
        self.without_number.insert(prefix);
    }

    pub(super) fn take_without_number(&mut self) -> Vec<Prefix<A>> {
        self.without_number.drain().collect()
    }
}
