//! What each message of the kernel changes.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr};

use foldhash::fast::FixedState;
use lpm::Prefix;
use netdev::monitor::{Entry, Hop, Kind, Message, NextHopObject, PolicyRule, TableRoute};
use netdev::{Link, Neighbour};

use super::outlet::Outlet;
use super::routes::{Rank, Route};
use super::side::Side;
use super::table::Table;
use super::way::{Key, WayId};
use super::world::World;
use super::{Census, Follow, Origin, settle};
use crate::forward::Plane;

/// `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`
const MAIN: u32 = 254;
const LOCAL: u32 = 255;

impl<P: Plane> Follow<P> {
    pub(super) fn take(&mut self, message: &Message<'_>, origin: Origin) {
        if origin == Origin::Change {
            self.changes.count(&message.entry);
        }
        let gone = message.gone;
        match message.entry {
            Entry::Link(link) => {
                if self.heard(origin, |census| &mut census.links, link.index) {
                    self.link(link, gone);
                }
            }
            Entry::Neighbour(neighbour) => {
                let key = (neighbour.ifindex, neighbour.address);
                if self.heard(origin, |census| &mut census.neighbours, key) {
                    self.neighbour(neighbour, gone);
                }
            }
            Entry::NextHop(object) => {
                if self.heard(origin, |census| &mut census.objects, object.id) {
                    self.object(object, gone);
                }
            }
            Entry::Rule(rule) => {
                if self.heard(origin, |census| &mut census.rules, rule) {
                    self.rule(rule, gone);
                }
            }
            Entry::Address(address) => {
                self.doubt |= gone && self.loaded;
                if let IpAddr::V4(near) = address.address {
                    let key = (address.ifindex, near);
                    if self.heard(origin, |census| &mut census.addresses, key) {
                        self.address(address.ifindex, near, gone);
                    }
                }
            }
            Entry::Route(route) if route.table != MAIN || self.world.takes(&route, gone) => {
                match route.destination {
                    IpAddr::V4(_) => self.route4(&route, gone, origin),
                    IpAddr::V6(_) => self.route6(&route, gone, origin),
                }
                self.move_gateways();
            }
            // Others are given in its place.
            Entry::Route(_) => {}
        }
    }

    pub(super) fn move_gateways(&mut self) {
        if self.loaded && self.world.gateways_moved() {
            self.refresh(|_| false);
        }
    }

    pub(super) fn forget_unlisted(&mut self, census: &Census) {
        let links = self.world.links().map(|link| link.index);
        for ifindex in census.links.missing(links) {
            let link = Link {
                index: ifindex,
                ..Link::default()
            };
            self.link(&link, true);
        }
        for id in census.objects.missing(self.world.objects()) {
            self.remove_objects(id);
        }
        for (ifindex, address) in census.neighbours.missing(self.world.neighbours()) {
            self.lose_neighbour(ifindex, address);
        }
        for (ifindex, address) in census.addresses.missing(self.world.addresses()) {
            self.address(ifindex, address, true);
        }
        for rule in census.rules.missing(self.rules.iter().copied()) {
            self.rules.remove(&rule);
        }
    }

    /// Whether a message is news: a listing's is not where something changed since.
    fn heard<K: std::hash::Hash + Eq + Copy>(
        &mut self,
        origin: Origin,
        of: impl Fn(&mut Census) -> &mut super::Heard<K>,
        key: K,
    ) -> bool {
        let Some(census) = &mut self.census else {
            return true;
        };
        match origin {
            Origin::Listing => of(census).list(key),
            Origin::Change => {
                of(census).change(key);
                true
            }
        }
    }

    fn link(&mut self, link: &Link, gone: bool) {
        let changed = if gone {
            self.world.remove_link(link.index)
        } else {
            self.world.set_link(link)
        };
        if !changed {
            return;
        }
        // Frames of a VLAN device leave by the one below it.
        let above = self.world.links();
        let above = above.filter(|above| above.vlan.is_some() && above.link == Some(link.index));
        let mut concerned: Vec<u32> = above.map(|above| above.index).collect();
        concerned.push(link.index);
        self.refresh(|key| concerned.iter().any(|at| key.leaves_by(*at)));
        if gone || !link.up {
            let lost: Vec<(u32, IpAddr)> = self.world.neighbours().collect();
            for (ifindex, address) in lost {
                if ifindex == link.index {
                    self.lose_neighbour(ifindex, address);
                }
            }
            self.remove_dead();
        }
        if gone || !link.up || !link.carrier {
            // The kernel removes these without a word.
            let index = link.index;
            let gone = self
                .world
                .remove_objects(&|_, object| object.leaves_by(index));
            self.objects_gone(&gone);
        }
        self.doubt |= self.loaded;
    }

    fn neighbour(&mut self, neighbour: &Neighbour, gone: bool) {
        let (ifindex, address) = (neighbour.ifindex, neighbour.address);
        if gone {
            return self.lose_neighbour(ifindex, address);
        }
        if self.world.set_neighbour(neighbour) {
            self.neighbour_changed(ifindex, address);
        }
    }

    fn lose_neighbour(&mut self, ifindex: u32, address: IpAddr) {
        if self.world.remove_neighbour(ifindex, address) {
            self.neighbour_changed(ifindex, address);
        }
    }

    fn neighbour_changed(&mut self, ifindex: u32, address: IpAddr) {
        let Self {
            world, v4, v6, out, ..
        } = self;
        for way in v4.ways.by_neighbour(ifindex, address) {
            v4.ways.refresh(way, world, out);
        }
        for way in v6.ways.by_neighbour(ifindex, address) {
            v6.ways.refresh(way, world, out);
        }
        let usable = world.is_usable(ifindex, address);
        let loaded = self.loaded;
        if let Some(address) = u32::of(address) {
            let host = v4.set_neighbour(address, ifindex, usable);
            if loaded {
                v4.settle(host, world, out);
            }
        } else if let Some(address) = u128::of(address) {
            let host = v6.set_neighbour(address, ifindex, usable);
            if loaded {
                v6.settle(host, world, out);
            }
        }
    }

    /// Routes that rest on one address go with its local route; those of a device with its last.
    fn address(&mut self, ifindex: u32, address: Ipv4Addr, gone: bool) {
        if !gone {
            self.world.set_address(ifindex, address);
        } else if self.world.remove_address(ifindex, address) {
            let v4 = self.v4.remove_ways(&|key| match key {
                Key::Hops { hops, .. } => hops.iter().all(|hop| hop.ifindex == ifindex),
                _ => false,
            });
            if self.loaded {
                self.settle4(&v4);
            }
        }
    }

    fn object(&mut self, object: NextHopObject<'_>, gone: bool) {
        if gone {
            self.remove_objects(object.id);
        } else if self.world.set_object(object.id, object.meaning) {
            self.refresh(|_| false);
        }
    }

    fn remove_objects(&mut self, id: u32) {
        let gone = self.world.remove_objects(&|at, _| at == id);
        self.objects_gone(&gone);
    }

    fn objects_gone(&mut self, gone: &[u32]) {
        if gone.is_empty() {
            return;
        }
        self.refresh(|_| false);
        self.remove_ways(&|key| matches!(key, Key::Object { id, .. } if gone.contains(id)));
        self.doubt |= self.loaded;
    }

    /// Routes all of whose devices are down: the kernel says so of IPv6 only.
    fn remove_dead(&mut self) {
        let up: foldhash::HashSet<u32> = self
            .world
            .links()
            .filter(|link| self.world.is_up(link.index))
            .map(|link| link.index)
            .collect();
        self.remove_ways(&|key| match key {
            Key::Hops { hops, .. } => hops.iter().all(|hop| !up.contains(&hop.ifindex)),
            _ => false,
        });
    }

    fn remove_ways(&mut self, gone: &dyn Fn(&Key) -> bool) {
        let (v4, v6) = (self.v4.remove_ways(gone), self.v6.remove_ways(gone));
        if self.loaded {
            self.settle4(&v4);
            self.settle6(&v6);
        }
    }

    /// Tells what these ways mean now, and those by objects and of given routes.
    pub(super) fn refresh(&mut self, concerned: impl Fn(&Key) -> bool) {
        if !self.loaded {
            return;
        }
        let Self {
            world, v4, v6, out, ..
        } = self;
        refresh(v4, world, out, &concerned);
        refresh(v6, world, out, &concerned);
    }

    fn rule(&mut self, rule: PolicyRule, gone: bool) {
        if gone {
            self.rules.remove(&rule);
            return;
        }
        let first = self.rules.iter().all(|known| known.usual);
        self.rules.insert(rule);
        if !rule.usual && first {
            tracing::warn!(
                "policy routing rule {} (table {}): the data plane routes all packets by the tables local and main, whatever such rules say; see `ip rule`",
                rule.priority,
                rule.table
            );
        }
    }

    fn route4(&mut self, route: &TableRoute<'_>, gone: bool, origin: Origin) {
        let Self { world, v4, out, .. } = self;
        let Some(prefix) = change(v4, route, gone, origin, &mut self.doubt) else {
            return;
        };
        if !self.loaded {
            return;
        }
        settle(&[prefix], v4, world, out);
        let lost = gone && route.table == LOCAL && v4.routes(prefix).is_empty();
        if lost && prefix.len() == 32 {
            // The kernel says nothing of routes that packets from this address took.
            let address = route.destination;
            self.remove_ways(&|key| key.source() == Some(address));
        }
    }

    fn route6(&mut self, route: &TableRoute<'_>, gone: bool, origin: Origin) {
        let Self { world, v6, out, .. } = self;
        let prefix = change(v6, route, gone, origin, &mut self.doubt);
        if let Some(prefix) = prefix
            && self.loaded
        {
            settle(&[prefix], v6, world, out);
        }
    }
}

/// Takes a route in or out; returns the prefix if that can matter.
fn change<A: Side>(
    table: &mut Table<A>,
    route: &TableRoute<'_>,
    gone: bool,
    origin: Origin,
    doubt: &mut bool,
) -> Option<Prefix<A>> {
    let rank = match route.table {
        LOCAL => Rank::Local,
        MAIN => Rank::Main,
        _ => return None,
    };
    let prefix = Prefix::containing(A::of(route.destination)?, route.prefix_len).ok()?;
    let way = table.ways.hold(&key(route));
    let new = Route::new(rank, route.metric, variant(route), way);
    match (gone, origin) {
        (false, Origin::Change) => table.add(prefix, new, route.position),
        (false, Origin::Listing) => table.add_listed(prefix, new),
        (true, _) => {
            let known = table.remove(prefix, &new) || take_hops(table, prefix, &new, route);
            table.ways.drop_hold(way);
            // Taken out already, with its device; or something was missed.
            *doubt |= !known;
        }
    }
    Some(prefix)
}

/// Some hops leave an IPv6 route; those of a route that has others stay.
fn take_hops<A: Side>(
    table: &mut Table<A>,
    prefix: Prefix<A>,
    gone: &Route,
    route: &TableRoute<'_>,
) -> bool {
    let mut routes = table.routes(prefix).iter().enumerate();
    let found = routes.find_map(|(at, known)| {
        let same =
            (known.rank, known.metric, known.variant) == (gone.rank, gone.metric, gone.variant);
        let Key::Hops { hops, mtu, source } = table.ways.key(known.way) else {
            return None;
        };
        let of_it = route.hops.iter().all(|hop| hops.contains(hop));
        if !same || !of_it || route.hops.is_empty() || route.hops.len() == hops.len() {
            return None;
        }
        let left: Vec<Hop> = hops
            .iter()
            .filter(|hop| !route.hops.contains(hop))
            .copied()
            .collect();
        let key = Key::Hops {
            hops: left.into(),
            mtu: *mtu,
            source: *source,
        };
        Some((at, *known, key))
    });
    let Some((at, known, key)) = found else {
        return false;
    };
    let way: WayId = table.ways.hold(&key);
    table.remove_at(prefix, at);
    let left = Route::new(known.rank, known.metric, known.variant, way);
    table.add(prefix, left, netdev::monitor::Position::First);
    true
}

fn refresh<A: Side, P: Plane>(
    table: &mut Table<A>,
    world: &mut World,
    out: &mut Outlet<P>,
    concerned: &impl Fn(&Key) -> bool,
) {
    let numbered = table.ways.numbered();
    let concerned = numbered.filter(|(_, way)| match &way.key {
        key if key.is_resolved() => true,
        key => concerned(key),
    });
    // A group's members have their meaning before it.
    let mut ways: Vec<(bool, WayId)> = concerned.map(|(id, way)| (way.is_group(), id)).collect();
    ways.sort_unstable();
    for (_, way) in ways {
        table.ways.refresh(way, world, out);
    }
}

fn key(route: &TableRoute<'_>) -> Key {
    // The kernel takes an address that is gone out of IPv6 routes and leaves them.
    let source = route.source.filter(IpAddr::is_ipv4);
    match (route.kind, route.object) {
        (Kind::Local, _) => Key::Local,
        (Kind::Blackhole, _) => Key::Drop,
        (Kind::Unreachable | Kind::Prohibit | Kind::Throw, _) => Key::Refused,
        (Kind::Unicast, _) if route.encapsulated => Key::Kernel,
        (Kind::Unicast, Some(id)) => Key::Object {
            id,
            mtu: route.mtu,
            source,
        },
        (Kind::Unicast, None) if !route.hops.is_empty() => {
            let mut hops: Box<[Hop]> = route.hops.into();
            // Hops that were added one by one come in another order each time.
            hops.sort_unstable_by_key(|hop| (hop.ifindex, hop.gateway));
            Key::Hops {
                hops,
                mtu: route.mtu,
                source,
            }
        }
        (Kind::Unicast | Kind::Other, _) => Key::Kernel,
    }
}

/// Which packets of a prefix a route is for; 0 is all.
fn variant(route: &TableRoute<'_>) -> u32 {
    if route.tos == 0 && route.sources.is_none() {
        return 0;
    }
    let hash = FixedState::with_seed(0).hash_one((route.tos, route.sources));
    u32::try_from(hash >> 32).unwrap_or(u32::MAX).max(1)
}
