//! A new listing of the kernel's tables: which entries it has shown, and which have changed meanwhile.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};

use foldhash::HashSet;
use netdev::monitor::PolicyRule;

/// What a new listing has shown: what it has not is gone.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) links: Heard<u32>,
    pub(super) objects: Heard<u32>,
    pub(super) neighbours: Heard<(u32, IpAddr)>,
    pub(super) rules: Heard<PolicyRule>,
    pub(super) addresses: Heard<(u32, Ipv4Addr)>,
}

#[derive(Debug)]
pub(super) struct Heard<K> {
    listed: HashSet<K>,
    /// Changes are newer than the listing.
    changed: HashSet<K>,
}

impl<K> Default for Heard<K> {
    fn default() -> Self {
        Self {
            listed: HashSet::default(),
            changed: HashSet::default(),
        }
    }
}

impl<K: Hash + Eq + Copy> Heard<K> {
    /// Whether a listing's entry is news.
    pub(super) fn list(&mut self, key: K) -> bool {
        self.listed.insert(key);
        !self.changed.contains(&key)
    }

    pub(super) fn change(&mut self, key: K) {
        self.changed.insert(key);
    }

    pub(super) fn missing(&self, known: impl Iterator<Item = K>) -> Vec<K> {
        known
            .filter(|key| !self.listed.contains(key) && !self.changed.contains(key))
            .collect()
    }
}
