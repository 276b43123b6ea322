//! The next hops of one family's routes, each stored once, with their next-hop numbers and forwarding.
//!
//! A number is allocated when the first prefix needs it, and released with the last one. In between, changes
//! of devices and neighbours cost one update of the next hop, whatever the number of routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use foldhash::{HashMap, HashMapExt};
use lpm::NextHop;
use netdev::monitor::Hop;

use super::kernel_state::{HopState, KernelState, Resolution};
use super::plane_writer::PlaneWriter;
use crate::forward::{Family, Forwarding, Member, Plane, Punt};

/// The properties that routes with the same next-hop number share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Local,
    Refused,
    Drop,
    Kernel,
    Hops {
        hops: Box<[Hop]>,
        mtu: Option<u32>,
        source: Option<IpAddr>,
    },
    Object {
        id: u32,
        mtu: Option<u32>,
        source: Option<IpAddr>,
    },
    /// A next hop of static routes, which keeps its number.
    Static {
        family: Family,
        number: u16,
    },
}

pub(super) type NextHopId = u32;

#[derive(Debug)]
pub(super) struct NextHopEntry {
    pub(super) key: Key,
    /// Routes that name this next hop, best or not, and installed uses of it.
    references: u32,
    /// Installed prefixes and groups that use it.
    pub(super) uses: u32,
    pub(super) number: Option<NextHop>,
    pub(super) installed: Option<Forwarding>,
    /// A group's members, each a next hop with one hop.
    members: Vec<NextHopId>,
    /// The neighbours that its forwarding depends on while it is in use.
    neighbours: Vec<(u32, IpAddr)>,
}

/// The next hops of one family.
#[derive(Debug)]
pub(super) struct NextHopTable {
    family: Family,
    entries: Vec<Option<NextHopEntry>>,
    vacant: Vec<NextHopId>,
    by_key: HashMap<Key, NextHopId>,
    /// Entries in use, by the neighbours that they depend on.
    by_neighbour: HashMap<(u32, IpAddr), Vec<NextHopId>>,
    free: BTreeSet<u16>,
    /// Numbers released in this batch: packets in flight may still carry them.
    draining: Vec<u16>,
    /// The highest number ever allocated.
    highest: u16,
    limit: u16,
}

impl NextHopTable {
    pub(super) fn new(family: Family, limit: u16) -> Self {
        Self {
            family,
            entries: Vec::new(),
            vacant: Vec::new(),
            by_key: HashMap::new(),
            by_neighbour: HashMap::new(),
            free: BTreeSet::new(),
            draining: Vec::new(),
            highest: 0,
            limit: limit.min(NextHop::MAX),
        }
    }

    /// Finds or adds the entry of a key, and adds a reference, which `drop_hold` removes.
    pub(super) fn hold(&mut self, key: &Key) -> NextHopId {
        let id = match self.by_key.get(key) {
            Some(id) => *id,
            None => self.add(key.clone()),
        };
        self.entry_mut(id).references += 1;
        id
    }

    pub(super) fn drop_hold(&mut self, id: NextHopId) {
        let entry = self.entry_mut(id);
        entry.references -= 1;
        if entry.references == 0 {
            debug_assert_eq!(entry.uses, 0, "each use has a reference");
            let entry = self.entries[id as usize].take();
            if let Some(entry) = entry {
                self.by_key.remove(&entry.key);
            }
            self.vacant.push(id);
        }
    }

    pub(super) fn get(&self, id: NextHopId) -> &NextHopEntry {
        self.entries[id as usize]
            .as_ref()
            .expect("held, so it is there")
    }

    pub(super) fn key(&self, id: NextHopId) -> &Key {
        &self.get(id).key
    }

    /// Adds a use by a prefix or group, and returns the number; none if all numbers are taken.
    pub(super) fn acquire<P: Plane>(
        &mut self,
        id: NextHopId,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) -> Option<NextHop> {
        if let Some(number) = self.get(id).number {
            let entry = self.entry_mut(id);
            entry.uses += 1;
            entry.references += 1;
            return Some(number);
        }
        // The last number is for prefixes that are left to the kernel because there is no other number.
        let last = u16::from(*self.key(id) != Key::Kernel);
        let number = self.take_number(self.limit - last)?;
        let entry = self.entry_mut(id);
        entry.uses = 1;
        entry.references += 1;
        entry.number = Some(number);
        self.refresh(id, state, out);
        Some(number)
    }

    /// Allocates the first `count` numbers to the next hops of static routes, in order.
    pub(super) fn number<P: Plane>(
        &mut self,
        count: usize,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) -> Vec<NextHopId> {
        let family = self.family;
        let mut numbered = Vec::with_capacity(count);
        for number in (1..=self.limit).take(count) {
            let entry = self.hold(&Key::Static { family, number });
            self.acquire(entry, state, out);
            numbered.push(entry);
        }
        numbered
    }

    /// Adds a use by a route that the plane already has.
    pub(super) fn add_installed(&mut self, id: NextHopId) {
        let entry = self.entry_mut(id);
        entry.references += 2;
        entry.uses += 1;
    }

    pub(super) fn release<P: Plane>(&mut self, id: NextHopId, out: &mut PlaneWriter<P>) {
        let entry = self.entry_mut(id);
        entry.uses -= 1;
        if entry.uses == 0 {
            let members = std::mem::take(&mut entry.members);
            entry.installed = None;
            if let Some(number) = entry.number.take() {
                out.next_hop(self.family, number, &Forwarding::Punt(Punt::Unresolved));
                self.draining.push(number.get());
            }
            self.set_neighbours(id, &[]);
            for member in members {
                self.release(member, out);
            }
        }
        self.drop_hold(id);
    }

    /// Makes released numbers available again: no packet in flight carries them any more.
    pub(super) fn end_batch(&mut self) {
        self.free.extend(self.draining.drain(..));
    }

    /// Updates the plane if the forwarding of an entry has changed.
    pub(super) fn refresh<P: Plane>(
        &mut self,
        id: NextHopId,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) {
        let Some(number) = self.get(id).number else {
            return;
        };
        // New members are written before the group that names them, and old members are released after it.
        let hops = current_hops(self.key(id), state);
        self.set_neighbours(id, &hops);
        let members = self.acquire_members(id, &hops, state, out);
        let before = std::mem::replace(&mut self.entry_mut(id).members, members);
        let forwarding = self.forwarding(id, &hops, state);
        if self.get(id).installed.as_ref() != Some(&forwarding) {
            let installed = out.set_forwarding(self.family, number, forwarding, state);
            self.entry_mut(id).installed = Some(installed);
        }
        for member in before {
            self.release(member, out);
        }
    }

    /// Entries whose keys match, in use or not.
    pub(super) fn matching(
        &self,
        matches: &dyn Fn(&Key) -> bool,
    ) -> impl Iterator<Item = NextHopId> {
        let entries = (0..).zip(&self.entries);
        entries
            .filter(move |(_, entry)| entry.as_ref().is_some_and(|entry| matches(&entry.key)))
            .map(|(id, _)| id)
    }

    /// Writes all numbered entries to a new plane.
    pub(super) fn write_all<P: Plane>(
        &mut self,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) {
        let numbered = self.numbered();
        let mut entries: Vec<(bool, NextHopId)> =
            numbered.map(|(id, entry)| (entry.is_group(), id)).collect();
        entries.sort_unstable();
        for (_, id) in entries {
            self.entry_mut(id).installed = None;
            self.refresh(id, state, out);
        }
    }

    /// Entries that have a number.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (NextHopId, &NextHopEntry)> {
        let entries = (0..).zip(&self.entries);
        entries.filter_map(|(id, entry)| {
            Some((id, entry.as_ref().filter(|entry| entry.number.is_some())?))
        })
    }

    /// Entries in use that depend on a neighbour. Groups come after their members.
    pub(super) fn by_neighbour(&self, ifindex: u32, address: IpAddr) -> Vec<NextHopId> {
        let entries = self.by_neighbour.get(&(ifindex, address));
        let mut entries = entries.cloned().unwrap_or_default();
        entries.sort_by_key(|id| !self.get(*id).members.is_empty());
        entries
    }

    /// Neighbours that entries in use depend on.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.by_neighbour.keys().copied()
    }

    fn add(&mut self, key: Key) -> NextHopId {
        let entry = Some(NextHopEntry {
            key: key.clone(),
            references: 0,
            uses: 0,
            number: None,
            installed: None,
            members: Vec::new(),
            neighbours: Vec::new(),
        });
        let id = match self.vacant.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                NextHopId::try_from(self.entries.len() - 1)
                    .expect("fewer next hops than would fill memory")
            }
        };
        self.by_key.insert(key, id);
        id
    }

    fn entry_mut(&mut self, id: NextHopId) -> &mut NextHopEntry {
        self.entries[id as usize]
            .as_mut()
            .expect("held, so it is there")
    }

    fn take_number(&mut self, limit: u16) -> Option<NextHop> {
        if let Some(number) = self.free.pop_first() {
            return NextHop::new(number);
        }
        if self.highest >= limit {
            return None;
        }
        self.highest += 1;
        NextHop::new(self.highest)
    }

    fn acquire_members<P: Plane>(
        &mut self,
        id: NextHopId,
        hops: &[Hop],
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) -> Vec<NextHopId> {
        if hops.len() < 2 {
            return Vec::new();
        }
        let mtu = self.key(id).mtu();
        let mut members = Vec::with_capacity(hops.len());
        for hop in hops {
            let member = self.hold(&Key::single(*hop, mtu));
            if self.acquire(member, state, out).is_some() {
                members.push(member);
            }
            self.drop_hold(member);
        }
        members
    }

    fn forwarding(&self, id: NextHopId, hops: &[Hop], state: &KernelState) -> Forwarding {
        let mtu = match self.key(id) {
            Key::Local => return Forwarding::Punt(Punt::Local),
            Key::Refused => return Forwarding::Punt(Punt::Refused),
            Key::Drop => return Forwarding::Drop,
            Key::Kernel => return Forwarding::Punt(Punt::Device),
            Key::Hops { mtu, .. } => *mtu,
            Key::Object { .. } | Key::Static { .. } => match resolution(self.key(id), state) {
                Resolution::Blackhole => return Forwarding::Drop,
                Resolution::Refused => return Forwarding::Punt(Punt::Refused),
                Resolution::Kernel => return Forwarding::Punt(Punt::Device),
                Resolution::Hops(_) | Resolution::Unknown => self.key(id).mtu(),
            },
        };
        if hops.len() > 1 {
            return self.group(hops, mtu, state);
        }
        hops.first()
            .map_or(PUNT_UNRESOLVED, |hop| forwarding_by(hop, mtu, state))
    }

    /// The usable members. A single one needs no group.
    fn group(&self, hops: &[Hop], mtu: Option<u32>, state: &KernelState) -> Forwarding {
        // A hop without a gateway is a connected link, on which the kernel also chooses the neighbour.
        if hops.iter().any(|hop| hop.gateway.is_none()) {
            return PUNT_UNRESOLVED;
        }
        let usable = hops.iter().map(|hop| (hop, forwarding_by(hop, mtu, state)));
        let usable: Vec<_> = usable.filter(|(_, to)| *to != PUNT_UNRESOLVED).collect();
        match usable.as_slice() {
            [] => return PUNT_UNRESOLVED,
            [(_, to)] => return to.clone(),
            _ => {}
        }
        let number = |hop: &Hop| {
            let id = self.by_key.get(&Key::single(*hop, mtu))?;
            self.get(*id).number
        };
        let members = usable.iter().map(|(hop, _)| {
            let weight = hop.weight.max(1);
            number(hop).map(|hop| Member { hop, weight })
        });
        // Without a number for each member, the kernel distributes the packets.
        members
            .collect::<Option<Vec<_>>>()
            .map_or(Forwarding::Punt(Punt::Device), Forwarding::Group)
    }

    fn set_neighbours(&mut self, id: NextHopId, hops: &[Hop]) {
        let keys = hops.iter();
        let keys = keys.filter_map(|hop| Some((hop.ifindex, hop.gateway?)));
        let keys: Vec<(u32, IpAddr)> = keys.collect();
        if self.get(id).neighbours == keys {
            return;
        }
        let before = std::mem::replace(&mut self.entry_mut(id).neighbours, keys.clone());
        for key in before {
            if let Some(entries) = self.by_neighbour.get_mut(&key) {
                entries.retain(|entry| *entry != id);
                if entries.is_empty() {
                    self.by_neighbour.remove(&key);
                }
            }
        }
        for key in keys {
            self.by_neighbour.entry(key).or_default().push(id);
        }
    }
}

const PUNT_UNRESOLVED: Forwarding = Forwarding::Punt(Punt::Unresolved);

fn forwarding_by(hop: &Hop, mtu: Option<u32>, state: &KernelState) -> Forwarding {
    match state.hop_state(hop, mtu) {
        HopState::Ready(adjacency) => Forwarding::Neighbour(adjacency),
        HopState::Device => Forwarding::Punt(Punt::Device),
        HopState::Unresolved | HopState::Down => PUNT_UNRESOLVED,
    }
}

/// The current hops of a key.
fn current_hops(key: &Key, state: &KernelState) -> Vec<Hop> {
    match key {
        Key::Hops { hops, .. } => hops.to_vec(),
        Key::Object { .. } | Key::Static { .. } => match resolution(key, state) {
            Resolution::Hops(hops) => hops,
            Resolution::Blackhole
            | Resolution::Refused
            | Resolution::Kernel
            | Resolution::Unknown => Vec::new(),
        },
        Key::Local | Key::Refused | Key::Drop | Key::Kernel => Vec::new(),
    }
}

/// Resolves the key of a next-hop object or of a static route.
fn resolution(key: &Key, state: &KernelState) -> Resolution {
    match key {
        Key::Object { id, .. } => state.resolve(*id),
        Key::Static { family, number } => state.resolve_static(*family, *number),
        _ => Resolution::Unknown,
    }
}

impl NextHopEntry {
    pub(super) fn is_group(&self) -> bool {
        !self.members.is_empty()
    }
}

impl Key {
    /// The key of a single hop.
    pub(super) fn single(hop: Hop, mtu: Option<u32>) -> Self {
        Self::Hops {
            hops: [Hop { weight: 1, ..hop }].into(),
            mtu,
            source: None,
        }
    }

    pub(super) fn mtu(&self) -> Option<u32> {
        match self {
            Self::Hops { mtu, .. } | Self::Object { mtu, .. } => *mtu,
            _ => None,
        }
    }

    pub(super) fn source(&self) -> Option<IpAddr> {
        match self {
            Self::Hops { source, .. } | Self::Object { source, .. } => *source,
            _ => None,
        }
    }

    /// The device of a connected route.
    pub(super) fn connected(&self, state: &KernelState) -> Option<u32> {
        let connected = |hops: &[Hop]| match hops {
            [hop] if hop.gateway.is_none() => Some(hop.ifindex),
            _ => None,
        };
        match self {
            Self::Hops { hops, .. } => connected(hops),
            Self::Static { .. } => connected(&current_hops(self, state)),
            _ => None,
        }
    }

    /// Whether its hops depend on other objects, devices or networks.
    pub(super) fn is_resolved(&self) -> bool {
        matches!(self, Self::Object { .. } | Self::Static { .. })
    }

    pub(super) fn has_gateways(&self) -> bool {
        match self {
            Self::Hops { hops, .. } => hops.iter().all(|hop| hop.gateway.is_some()),
            _ => false,
        }
    }

    pub(super) fn leaves_by(&self, ifindex: u32) -> bool {
        match self {
            Self::Hops { hops, .. } => hops.iter().any(|hop| hop.ifindex == ifindex),
            _ => false,
        }
    }
}
