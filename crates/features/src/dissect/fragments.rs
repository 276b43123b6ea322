//! Gives later fragments the protocol and ports of the first fragment of the same packet.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use packet::parse::Fragment;

use super::{Packet, Tunnel};
use crate::key::{Endpoint, Key, Sender};

/// Later fragments beyond this age no longer match (RFC 8200 section 4.5: 60 s; Linux: 30 s).
const LIFETIME_NS: i64 = 30_000_000_000;
/// The maximum number of remembered first fragments. A new one replaces the oldest.
const CAPACITY: usize = 8192;

/// The most recent first fragments.
#[derive(Debug)]
pub struct Fragments {
    /// Indices into `seen`.
    index: HashTable<u32>,
    /// A ring in order of arrival.
    seen: Vec<First>,
    next: usize,
    hasher: foldhash::fast::RandomState,
}

/// Identifies the packet of a fragment: RFC 791 section 3.2, RFC 8200 section 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Whole {
    source: u128,
    destination: u128,
    identification: u32,
    vlan: u16,
    /// The protocol of the IPv4 header. In IPv6 only the first fragment has the protocol: the others have the number
    /// of the extension header that follows the first one's fragment header.
    ip_protocol: u8,
    version: u8,
    /// The tunnel's identifier. It may differ between directions, but a packet's fragments all have the same direction.
    tunnel: u32,
}

#[derive(Clone, Copy, Debug)]
struct First {
    of: Whole,
    ports: (u16, u16),
    protocol: u8,
    time_ns: i64,
}

impl Default for Fragments {
    fn default() -> Self {
        Self {
            index: HashTable::new(),
            seen: Vec::new(),
            next: 0,
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Fragments {
    /// Remembers a first fragment, and gives a later fragment the protocol and ports of its first. Returns whether the
    /// packet has its ports, which is `false` only for later fragments with an unknown first fragment.
    pub fn complete(&mut self, packet: &mut Packet<'_>) -> bool {
        match packet.fragment {
            Fragment::None => true,
            Fragment::First => {
                self.remember(packet);
                true
            }
            Fragment::Later => self.recall(packet),
        }
    }

    fn remember(&mut self, packet: &Packet<'_>) {
        let first = First {
            of: Whole::of(packet),
            ports: ports(packet),
            protocol: packet.key.protocol,
            time_ns: packet.time_ns,
        };
        let hash = self.hasher.hash_one(first.of);
        if let Some(&place) = self.find(hash, &first.of) {
            self.seen[place as usize] = first;
            return;
        }
        let place = self.next;
        self.next = (self.next + 1) % CAPACITY;
        if place < self.seen.len() {
            self.forget(place);
            self.seen[place] = first;
        } else {
            self.seen.push(first);
        }
        let (seen, hasher) = (&self.seen, &self.hasher);
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        self.index
            .insert_unique(hash, place, |&at| hasher.hash_one(seen[at as usize].of));
    }

    fn forget(&mut self, place: usize) {
        let hash = self.hasher.hash_one(self.seen[place].of);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at as usize == place) {
            entry.remove();
        }
    }

    fn recall(&self, packet: &mut Packet<'_>) -> bool {
        let whole = Whole::of(packet);
        let found = self.find(self.hasher.hash_one(whole), &whole);
        let Some(first) = found.map(|&place| self.seen[place as usize]) else {
            return false;
        };
        if packet.time_ns.saturating_sub(first.time_ns) > LIFETIME_NS {
            return false;
        }
        let from = |address, port| Endpoint { address, port };
        let (key, sender) = Key::of(
            from(whole.source, first.ports.0),
            from(whole.destination, first.ports.1),
            first.protocol,
            whole.version,
        );
        packet.key.addresses = key.addresses;
        packet.key.ports = key.ports;
        packet.key.protocol = first.protocol;
        packet.sender = sender;
        true
    }

    fn find(&self, hash: u64, whole: &Whole) -> Option<&u32> {
        self.index
            .find(hash, |&place| self.seen[place as usize].of == *whole)
    }
}

impl Whole {
    fn of(packet: &Packet<'_>) -> Self {
        let end = |sender: Sender| packet.key.endpoint(sender).address;
        Self {
            source: end(packet.sender),
            destination: end(packet.sender.other()),
            identification: packet.identification,
            vlan: packet.key.vlan,
            ip_protocol: packet.ip_protocol,
            version: packet.key.version,
            tunnel: packet.tunnel.map_or(0, Tunnel::id),
        }
    }
}

fn ports(packet: &Packet<'_>) -> (u16, u16) {
    let port = |sender: Sender| packet.key.endpoint(sender).port;
    (port(packet.sender), port(packet.sender.other()))
}
