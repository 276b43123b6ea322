//! The kernel's routes in a data plane: what changes in the kernel's tables becomes the calls to a
//! [`Plane`] that follow from it, in an order in which no packet goes where none of both states
//! would send it. Reading the tables is [`run`]'s.
//!
//! A prefix of a whole link is the kernel's, which finds out who is there; each neighbour that it
//! has found gets a route of its own.

mod census;
pub(crate) mod first;
mod given;
mod kernel_route;
mod outlet;
mod routes;
mod run;
mod shortage;
mod side;
mod status;
mod table;
mod view;
mod way;
mod world;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt};
use lpm::{NextHop, Prefix};
use netdev::monitor::{Entry, Message, NextHopObject, PolicyRule, TableRoute};
use netdev::{Link, Neighbour};

use crate::forward::Plane;
use crate::image::StoredRoutes;
use census::{Census, Heard};
use outlet::Outlet;
use routes::{Rank, Route};
use side::Side;
use table::Table;
use way::Key;
use world::World;

pub use run::{Follower, Options, RunError};
pub use status::{Changes, Lag, Numbers, Routes, Status, Sync, Told};
pub use view::{NamedPort, NextHopView, RouteView};

/// A neighbour is asked for at most this often.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// The kernel's tables as far as heard of, and a plane that is told what they come to.
#[derive(Debug)]
pub struct Follow<P> {
    world: World,
    v4: Table<u32>,
    v6: Table<u128>,
    out: Outlet<P>,
    rules: BTreeSet<PolicyRule>,
    census: Option<Census>,
    /// Until everything was heard once the plane is told nothing.
    loaded: bool,
    /// The kernel may have changed something without a word.
    doubt: bool,
    asked: HashMap<(u32, IpAddr), Instant>,
    changes: Changes,
    listings: u64,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Change,
    Listing,
}

impl<P: Plane> Follow<P> {
    /// A plane that knows nothing, with room for `next_hops` numbers of each family.
    pub fn new(plane: P, next_hops: u16) -> Self {
        let mut follow = Self {
            world: World::default(),
            v4: Table::new(next_hops),
            v6: Table::new(next_hops),
            out: Outlet::new(plane),
            rules: BTreeSet::new(),
            census: None,
            loaded: false,
            doubt: false,
            asked: HashMap::new(),
            changes: Changes::default(),
            listings: 0,
        };
        keep(&mut follow.v4);
        keep(&mut follow.v6);
        follow
    }

    /// One that routes by these routes, which the plane has, with their numbers; of the kernel's routes
    /// only those count that are of its own addresses and of networks on links.
    pub fn with(plane: P, next_hops: u16, routes: &StoredRoutes) -> Self {
        let mut follow = Self::new(plane, next_hops);
        follow.world = World::with(routes);
        let Self {
            world, v4, v6, out, ..
        } = &mut follow;
        let ways = v4.ways.number(routes.hops4.len(), world, out);
        v4.give(&routes.v4, &ways);
        let ways = v6.ways.number(routes.hops6.len(), world, out);
        v6.give(&routes.v6, &ways);
        follow
    }

    /// Goes on with another plane, which has these routes already and is told the rest.
    fn onto<Q: Plane>(self, plane: Q) -> Follow<Q> {
        let mut out = Outlet::new(plane);
        let (mut world, mut v4, mut v6) = (self.world, self.v4, self.v6);
        v4.ways.tell_all(&mut world, &mut out);
        v6.ways.tell_all(&mut world, &mut out);
        Follow {
            world,
            v4,
            v6,
            out,
            rules: self.rules,
            census: self.census,
            loaded: self.loaded,
            doubt: self.doubt,
            asked: self.asked,
            changes: self.changes,
            listings: self.listings,
        }
    }

    /// A change, in the kernel's order.
    pub fn change(&mut self, message: &Message<'_>) {
        self.take(message, Origin::Change);
    }

    /// Everything will be listed once more, from the beginning.
    pub fn begin_listing(&mut self) {
        self.census = Some(Census::default());
        self.doubt = false;
        self.world.begin_listing();
        self.v4.begin_sweep();
        self.v6.begin_sweep();
    }

    /// An entry of the listing. Changes may come in between, each of which is newer.
    pub fn listed(&mut self, message: &Message<'_>) {
        self.take(message, Origin::Listing);
    }

    /// All was listed: what was not is gone.
    pub fn end_listing(&mut self) {
        self.listings += 1;
        if let Some(census) = self.census.take() {
            self.forget_unlisted(&census);
        }
        let (v4, v6) = (self.v4.end_sweep(), self.v6.end_sweep());
        self.world.end_listing();
        if self.loaded {
            self.settle4(&v4);
            self.settle6(&v6);
            self.move_gateways();
            return;
        }
        self.loaded = true;
        if self.world.is_given() {
            self.refresh(|_| false);
            self.v4.settle_rest(&mut self.world, &mut self.out);
            self.v6.settle_rest(&mut self.world, &mut self.out);
        } else {
            self.v4.settle_all(&mut self.world, &mut self.out);
            self.v6.settle_all(&mut self.world, &mut self.out);
        }
    }

    /// Whether all should be listed anew, because the kernel may have changed something without a
    /// notification: it sends none for IPv4 routes that go with a device, an address or a next hop.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt
    }

    /// Between batches of changes.
    pub fn pause(&mut self) {
        self.v4.ways.pause();
        self.v6.ways.pause();
    }

    /// Neighbours that the kernel should ask for now: packets that the plane forwards confirm none.
    pub fn to_probe(&mut self, now: Instant) -> Vec<(u32, IpAddr)> {
        if !self.loaded {
            return Vec::new();
        }
        self.asked
            .retain(|_, asked| now.duration_since(*asked) < PROBE_EVERY);
        let wanted = self.v4.ways.neighbours().chain(self.v6.ways.neighbours());
        let due: BTreeSet<(u32, IpAddr)> = wanted
            .filter(|key| !self.asked.contains_key(key) && self.world.should_probe(key.0, key.1))
            .collect();
        self.asked.extend(due.iter().map(|key| (*key, now)));
        due.into_iter().collect()
    }

    /// Whether a gateway in use may still answer the kernel's question who it is.
    pub fn is_resolving(&self) -> bool {
        let mut wanted = self.v4.ways.neighbours().chain(self.v6.ways.neighbours());
        wanted.any(|(ifindex, address)| self.world.is_awaited(ifindex, address))
    }

    /// Tries again what the plane had no room for.
    pub fn retry(&mut self) {
        self.v4.retry(&mut self.world, &mut self.out);
        self.v6.retry(&mut self.world, &mut self.out);
    }

    /// What the plane answers about an address: the prefix and its next hop's number.
    pub fn next_hop_of(&self, address: IpAddr) -> Option<NextHop> {
        match address {
            IpAddr::V4(address) => number(&self.v4, address.to_bits()),
            IpAddr::V6(address) => number(&self.v6, address.to_bits()),
        }
    }

    pub fn plane(&self) -> &P {
        &self.out.plane
    }

    /// For what is not routes: rules, counters.
    pub fn plane_mut(&mut self) -> &mut P {
        &mut self.out.plane
    }

    fn settle4(&mut self, prefixes: &[Prefix<u32>]) {
        settle(prefixes, &mut self.v4, &mut self.world, &mut self.out);
    }

    fn settle6(&mut self, prefixes: &[Prefix<u128>]) {
        settle(prefixes, &mut self.v6, &mut self.world, &mut self.out);
    }

    /// The ports of the devices with these names that are there.
    pub fn ports(&self, names: &[String]) -> Vec<NamedPort> {
        view::ports(&self.world, names)
    }

    /// What is installed, in order: the prefix that an address matches, or the first `limit` of
    /// all.
    pub fn routes(&self, of: Option<IpAddr>, limit: usize) -> Vec<RouteView> {
        match of {
            Some(IpAddr::V4(address)) => {
                view::routes(&self.v4, &self.world, Some(address.to_bits()), 1)
            }
            Some(IpAddr::V6(address)) => {
                view::routes(&self.v6, &self.world, Some(address.to_bits()), 1)
            }
            None => {
                let mut found = view::routes(&self.v4, &self.world, None, limit);
                let left = limit - found.len();
                found.extend(view::routes(&self.v6, &self.world, None, left));
                found
            }
        }
    }

    /// All next hops that have numbers, by family and number.
    pub fn next_hops(&self) -> Vec<NextHopView> {
        let mut hops = view::next_hops(&self.v4, &self.world);
        hops.extend(view::next_hops(&self.v6, &self.world));
        hops.sort_by_key(|hop| (hop.family, hop.number));
        hops
    }

    /// What the tables hold and the plane was told. Overruns, lag and state are the reader's.
    pub fn status(&self) -> Status {
        let outlet::Told {
            routes,
            next_hops,
            refusals,
        } = self.out.told;
        Status {
            sync: match (self.loaded, &self.census) {
                (false, _) => Sync::Loading,
                (true, None) => Sync::Following,
                (true, Some(_)) => Sync::Listing,
            },
            ipv4: status::routes_of(&self.v4),
            ipv6: status::routes_of(&self.v6),
            changes: self.changes,
            told: Told {
                routes,
                next_hops,
                refusals,
            },
            listings: self.listings,
            overruns: 0,
            foreign_rules: self.rules.iter().filter(|rule| !rule.usual).count(),
            event_lag_us: Lag::default(),
        }
    }

    fn take(&mut self, message: &Message<'_>, origin: Origin) {
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
            Entry::Route(route)
                if route.table != kernel_route::MAIN || self.world.takes(&route, gone) =>
            {
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

    fn move_gateways(&mut self) {
        if self.loaded && self.world.gateways_moved() {
            self.refresh(|_| false);
        }
    }

    fn forget_unlisted(&mut self, census: &Census) {
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
        of: impl Fn(&mut Census) -> &mut Heard<K>,
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
    fn refresh(&mut self, concerned: impl Fn(&Key) -> bool) {
        if !self.loaded {
            return;
        }
        let Self {
            world, v4, v6, out, ..
        } = self;
        kernel_route::refresh(v4, world, out, &concerned);
        kernel_route::refresh(v6, world, out, &concerned);
    }

    fn rule(&mut self, rule: PolicyRule, gone: bool) {
        if gone {
            self.rules.remove(&rule);
        } else {
            self.rules.insert(rule);
        }
    }

    fn route4(&mut self, route: &TableRoute<'_>, gone: bool, origin: Origin) {
        let Self { world, v4, out, .. } = self;
        let Some(prefix) = kernel_route::take(v4, route, gone, origin, &mut self.doubt) else {
            return;
        };
        if !self.loaded {
            return;
        }
        settle(&[prefix], v4, world, out);
        let lost = gone && route.table == kernel_route::LOCAL && v4.routes(prefix).is_empty();
        if lost && prefix.len() == 32 {
            // The kernel sends no notification for routes that packets from this address took.
            let address = route.destination;
            self.remove_ways(&|key| key.source() == Some(address));
        }
    }

    fn route6(&mut self, route: &TableRoute<'_>, gone: bool, origin: Origin) {
        let Self { world, v6, out, .. } = self;
        let prefix = kernel_route::take(v6, route, gone, origin, &mut self.doubt);
        if let Some(prefix) = prefix
            && self.loaded
        {
            settle(&[prefix], v6, world, out);
        }
    }
}

/// With the neighbours within: a route through the link can come or go between.
fn settle<A: Side, P: Plane>(
    prefixes: &[Prefix<A>],
    table: &mut Table<A>,
    world: &mut World,
    out: &mut Outlet<P>,
) {
    for prefix in prefixes {
        table.settle(*prefix, world, out);
        for host in table.neighbours_within(*prefix) {
            table.settle(host, world, out);
        }
    }
}

fn keep<A: Side>(table: &mut Table<A>) {
    for prefix in A::kept() {
        let way = table.ways.hold(&Key::Local);
        let route = Route::new(Rank::Kept, 0, 0, way);
        table.add(prefix, route, netdev::monitor::Position::Last);
    }
}

fn number<A: Side>(table: &Table<A>, address: A) -> Option<NextHop> {
    let way = table.installed_for(address)?;
    table.ways.get(way).number
}
