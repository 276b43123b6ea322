//! Synchronisation of a dump of the kernel's tables with concurrent notifications.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};

use foldhash::HashSet;
use netdev::monitor::PolicyRule;

/// Keys of the entries that a running dump has delivered. Other entries no longer exist.
#[derive(Debug, Default)]
pub(super) struct DumpSync {
    pub(super) links: DumpKeys<u32>,
    pub(super) objects: DumpKeys<u32>,
    pub(super) neighbours: DumpKeys<(u32, IpAddr)>,
    pub(super) rules: DumpKeys<PolicyRule>,
    pub(super) addresses: DumpKeys<(u32, Ipv4Addr)>,
}

#[derive(Debug)]
pub(super) struct DumpKeys<K> {
    dumped: HashSet<K>,
    /// Keys that a notification changed during the dump. Notifications are newer than the dump.
    changed: HashSet<K>,
}

impl<K> Default for DumpKeys<K> {
    fn default() -> Self {
        Self {
            dumped: HashSet::default(),
            changed: HashSet::default(),
        }
    }
}

impl<K: Hash + Eq + Copy> DumpKeys<K> {
    /// Records a dumped entry, and returns whether it is current: no notification has changed it meanwhile.
    pub(super) fn record(&mut self, key: K) -> bool {
        self.dumped.insert(key);
        !self.changed.contains(&key)
    }

    pub(super) fn mark_changed(&mut self, key: K) {
        self.changed.insert(key);
    }

    pub(super) fn missing(&self, known: impl Iterator<Item = K>) -> Vec<K> {
        known
            .filter(|key| !self.dumped.contains(key) && !self.changed.contains(key))
            .collect()
    }
}
