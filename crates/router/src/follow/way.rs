//! The different ways of routes, each once: which have next-hop numbers, and what those mean.
//!
//! A number is given when the first prefix needs it and taken back when the last is gone; in
//! between its meaning follows devices and neighbours, whatever the number of routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use foldhash::{HashMap, HashMapExt};
use lpm::NextHop;
use netdev::monitor::Hop;

use super::outlet::Outlet;
use super::world::{Expanded, Outlook, World};
use crate::forward::{Family, Forwarding, Member, Plane, Punt};

/// What is common to all routes with one next-hop number.
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
    /// A next hop of routes that are given, which keeps the number that it has there.
    Given {
        family: Family,
        number: u16,
    },
}

pub(super) type WayId = u32;

#[derive(Debug)]
pub(super) struct Way {
    pub(super) key: Key,
    /// Routes that go this way, best or not, and what is installed by it.
    held: u32,
    /// Installed prefixes and groups.
    pub(super) uses: u32,
    pub(super) number: Option<NextHop>,
    pub(super) told: Option<Forwarding>,
    /// The ways of single hops that a group's members are.
    members: Vec<WayId>,
    /// The neighbours it rests on while it is in use.
    rests_on: Vec<(u32, IpAddr)>,
}

/// The ways of one family.
#[derive(Debug)]
pub(super) struct Ways {
    family: Family,
    ways: Vec<Option<Way>>,
    vacant: Vec<WayId>,
    by_key: HashMap<Key, WayId>,
    /// Those in use that rest on a neighbour.
    by_neighbour: HashMap<(u32, IpAddr), Vec<WayId>>,
    free: BTreeSet<u16>,
    /// Taken back since the last pause: packets on their way may still have them.
    resting: Vec<u16>,
    /// The largest ever given.
    highest: u16,
    limit: u16,
}

impl Ways {
    pub(super) fn new(family: Family, limit: u16) -> Self {
        Self {
            family,
            ways: Vec::new(),
            vacant: Vec::new(),
            by_key: HashMap::new(),
            by_neighbour: HashMap::new(),
            free: BTreeSet::new(),
            resting: Vec::new(),
            highest: 0,
            limit: limit.min(NextHop::MAX),
        }
    }

    /// The way of a key, held until `drop_hold`.
    pub(super) fn hold(&mut self, key: &Key) -> WayId {
        let id = match self.by_key.get(key) {
            Some(id) => *id,
            None => self.add(key.clone()),
        };
        self.way_mut(id).held += 1;
        id
    }

    pub(super) fn drop_hold(&mut self, id: WayId) {
        let way = self.way_mut(id);
        way.held -= 1;
        if way.held == 0 {
            debug_assert_eq!(way.uses, 0, "whoever uses a way holds it");
            let way = self.ways[id as usize].take();
            if let Some(way) = way {
                self.by_key.remove(&way.key);
            }
            self.vacant.push(id);
        }
    }

    pub(super) fn get(&self, id: WayId) -> &Way {
        self.ways[id as usize]
            .as_ref()
            .expect("held, so it is there")
    }

    pub(super) fn key(&self, id: WayId) -> &Key {
        &self.get(id).key
    }

    /// A number for one more prefix or group; none when all are taken.
    pub(super) fn acquire<P: Plane>(
        &mut self,
        id: WayId,
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> Option<NextHop> {
        if let Some(number) = self.get(id).number {
            let way = self.way_mut(id);
            way.uses += 1;
            way.held += 1;
            return Some(number);
        }
        // The last one is for what has to be left to the kernel for want of numbers.
        let last = u16::from(*self.key(id) != Key::Kernel);
        let number = self.take_number(self.limit - last)?;
        let way = self.way_mut(id);
        way.uses = 1;
        way.held += 1;
        way.number = Some(number);
        self.refresh(id, world, out);
        Some(number)
    }

    /// Gives the next hops of given routes their numbers, which are theirs from now on: the first of
    /// all, in their order.
    pub(super) fn number<P: Plane>(
        &mut self,
        count: usize,
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> Vec<WayId> {
        let family = self.family;
        let mut numbered = Vec::with_capacity(count);
        for number in (1..=self.limit).take(count) {
            let way = self.hold(&Key::Given { family, number });
            self.acquire(way, world, out);
            numbered.push(way);
        }
        numbered
    }

    /// One more route, which the plane has already.
    pub(super) fn give(&mut self, id: WayId) {
        let way = self.way_mut(id);
        way.held += 2;
        way.uses += 1;
    }

    pub(super) fn release<P: Plane>(&mut self, id: WayId, out: &mut Outlet<P>) {
        let way = self.way_mut(id);
        way.uses -= 1;
        if way.uses == 0 {
            let members = std::mem::take(&mut way.members);
            way.told = None;
            if let Some(number) = way.number.take() {
                out.next_hop(self.family, number, &Forwarding::Punt(Punt::Unresolved));
                self.resting.push(number.get());
            }
            self.rest_on(id, &[]);
            for member in members {
                self.release(member, out);
            }
        }
        self.drop_hold(id);
    }

    /// Numbers that were taken back can be given again: no packet has them any more.
    pub(super) fn pause(&mut self) {
        self.free.extend(self.resting.drain(..));
    }

    /// Tells the plane what a number means now, if that is something else than before.
    pub(super) fn refresh<P: Plane>(&mut self, id: WayId, world: &mut World, out: &mut Outlet<P>) {
        let Some(number) = self.get(id).number else {
            return;
        };
        // Members that are new get their meaning before the group that names them, and those
        // that it names no longer lose theirs afterwards.
        let hops = several(self.key(id), world);
        self.rest_on(id, &hops);
        let members = self.acquire_members(id, &hops, world, out);
        let before = std::mem::replace(&mut self.way_mut(id).members, members);
        let forwarding = self.meaning(id, &hops, world);
        if self.get(id).told.as_ref() != Some(&forwarding) {
            let told = out.tell(self.family, number, forwarding, world);
            self.way_mut(id).told = Some(told);
        }
        for member in before {
            self.release(member, out);
        }
    }

    /// The ways of routes, in use or not, that are so.
    pub(super) fn held(&self, so: &dyn Fn(&Key) -> bool) -> impl Iterator<Item = WayId> {
        let ways = (0..).zip(&self.ways);
        ways.filter(move |(_, way)| way.as_ref().is_some_and(|way| so(&way.key)))
            .map(|(id, _)| id)
    }

    /// Tells a plane that knows nothing what all numbers mean.
    pub(super) fn tell_all<P: Plane>(&mut self, world: &mut World, out: &mut Outlet<P>) {
        let numbered = self.numbered();
        let mut ways: Vec<(bool, WayId)> = numbered.map(|(id, way)| (way.is_group(), id)).collect();
        ways.sort_unstable();
        for (_, id) in ways {
            self.way_mut(id).told = None;
            self.refresh(id, world, out);
        }
    }

    /// Of ways that have numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (WayId, &Way)> {
        let ways = (0..).zip(&self.ways);
        ways.filter_map(|(id, way)| Some((id, way.as_ref().filter(|way| way.number.is_some())?)))
    }

    /// The ways in use by a neighbour. Groups come after their members.
    pub(super) fn by_neighbour(&self, ifindex: u32, address: IpAddr) -> Vec<WayId> {
        let ways = self.by_neighbour.get(&(ifindex, address));
        let mut ways = ways.cloned().unwrap_or_default();
        ways.sort_by_key(|id| !self.get(*id).members.is_empty());
        ways
    }

    /// Neighbours that ways in use rest on.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.by_neighbour.keys().copied()
    }

    fn add(&mut self, key: Key) -> WayId {
        let way = Some(Way {
            key: key.clone(),
            held: 0,
            uses: 0,
            number: None,
            told: None,
            members: Vec::new(),
            rests_on: Vec::new(),
        });
        let id = match self.vacant.pop() {
            Some(id) => {
                self.ways[id as usize] = way;
                id
            }
            None => {
                self.ways.push(way);
                WayId::try_from(self.ways.len() - 1).expect("fewer ways than would fill memory")
            }
        };
        self.by_key.insert(key, id);
        id
    }

    fn way_mut(&mut self, id: WayId) -> &mut Way {
        self.ways[id as usize]
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
        id: WayId,
        hops: &[Hop],
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> Vec<WayId> {
        if hops.len() < 2 {
            return Vec::new();
        }
        let mtu = self.key(id).mtu();
        let mut members = Vec::with_capacity(hops.len());
        for hop in hops {
            let member = self.hold(&Key::one(*hop, mtu));
            if self.acquire(member, world, out).is_some() {
                members.push(member);
            }
            self.drop_hold(member);
        }
        members
    }

    fn meaning(&self, id: WayId, hops: &[Hop], world: &World) -> Forwarding {
        let mtu = match self.key(id) {
            Key::Local => return Forwarding::Punt(Punt::Local),
            Key::Refused => return Forwarding::Punt(Punt::Refused),
            Key::Drop => return Forwarding::Drop,
            Key::Kernel => return Forwarding::Punt(Punt::Device),
            Key::Hops { mtu, .. } => *mtu,
            Key::Object { .. } | Key::Given { .. } => match expanded(self.key(id), world) {
                Expanded::Blackhole => return Forwarding::Drop,
                Expanded::Refused => return Forwarding::Punt(Punt::Refused),
                Expanded::Kernel => return Forwarding::Punt(Punt::Device),
                Expanded::Hops(_) | Expanded::Nothing => self.key(id).mtu(),
            },
        };
        if hops.len() > 1 {
            return self.group(hops, mtu, world);
        }
        hops.first().map_or(UNRESOLVED, |hop| one(hop, mtu, world))
    }

    /// The members that packets can take now; one alone needs no group.
    fn group(&self, hops: &[Hop], mtu: Option<u32>, world: &World) -> Forwarding {
        // The kernel shares packets out over neighbours as well, if a hop is the whole link.
        if hops.iter().any(|hop| hop.gateway.is_none()) {
            return UNRESOLVED;
        }
        let usable = hops.iter().map(|hop| (hop, one(hop, mtu, world)));
        let usable: Vec<_> = usable.filter(|(_, to)| *to != UNRESOLVED).collect();
        match usable.as_slice() {
            [] => return UNRESOLVED,
            [(_, to)] => return to.clone(),
            _ => {}
        }
        let number = |hop: &Hop| {
            let id = self.by_key.get(&Key::one(*hop, mtu))?;
            self.get(*id).number
        };
        let members = usable.iter().map(|(hop, _)| {
            let weight = hop.weight.max(1);
            number(hop).map(|hop| Member { hop, weight })
        });
        // Without numbers for all, the kernel shares them out.
        members
            .collect::<Option<Vec<_>>>()
            .map_or(Forwarding::Punt(Punt::Device), Forwarding::Group)
    }

    fn rest_on(&mut self, id: WayId, hops: &[Hop]) {
        let keys = hops.iter();
        let keys = keys.filter_map(|hop| Some((hop.ifindex, hop.gateway?)));
        let keys: Vec<(u32, IpAddr)> = keys.collect();
        if self.get(id).rests_on == keys {
            return;
        }
        let before = std::mem::replace(&mut self.way_mut(id).rests_on, keys.clone());
        for key in before {
            if let Some(ways) = self.by_neighbour.get_mut(&key) {
                ways.retain(|way| *way != id);
                if ways.is_empty() {
                    self.by_neighbour.remove(&key);
                }
            }
        }
        for key in keys {
            self.by_neighbour.entry(key).or_default().push(id);
        }
    }
}

const UNRESOLVED: Forwarding = Forwarding::Punt(Punt::Unresolved);

fn one(hop: &Hop, mtu: Option<u32>, world: &World) -> Forwarding {
    match world.outlook(hop, mtu) {
        Outlook::Ready(adjacency) => Forwarding::Neighbour(adjacency),
        Outlook::Device => Forwarding::Punt(Punt::Device),
        Outlook::Unresolved | Outlook::Dead => UNRESOLVED,
    }
}

/// The hops of a way as they are now.
fn several(key: &Key, world: &World) -> Vec<Hop> {
    match key {
        Key::Hops { hops, .. } => hops.to_vec(),
        Key::Object { .. } | Key::Given { .. } => match expanded(key, world) {
            Expanded::Hops(hops) => hops,
            Expanded::Blackhole | Expanded::Refused | Expanded::Kernel | Expanded::Nothing => {
                Vec::new()
            }
        },
        Key::Local | Key::Refused | Key::Drop | Key::Kernel => Vec::new(),
    }
}

/// What a way by an object, or of given routes, comes to.
fn expanded(key: &Key, world: &World) -> Expanded {
    match key {
        Key::Object { id, .. } => world.expand(*id),
        Key::Given { family, number } => world.expand_given(*family, *number),
        _ => Expanded::Nothing,
    }
}

impl Way {
    pub(super) fn is_group(&self) -> bool {
        !self.members.is_empty()
    }
}

impl Key {
    /// The way by one hop alone.
    pub(super) fn one(hop: Hop, mtu: Option<u32>) -> Self {
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

    /// The device whose neighbours' addresses the routes are for.
    pub(super) fn connected(&self, world: &World) -> Option<u32> {
        let connected = |hops: &[Hop]| match hops {
            [hop] if hop.gateway.is_none() => Some(hop.ifindex),
            _ => None,
        };
        match self {
            Self::Hops { hops, .. } => connected(hops),
            Self::Given { .. } => connected(&several(self, world)),
            _ => None,
        }
    }

    /// Whether it means something else when a device, an object or a network does.
    pub(super) fn is_resolved(&self) -> bool {
        matches!(self, Self::Object { .. } | Self::Given { .. })
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
