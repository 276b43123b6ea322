//! The kernel's routes in a data plane: what changes in the kernel's tables becomes the calls to a
//! [`Plane`] that follow from it, in an order in which no packet goes where none of both states
//! would send it. Reading the tables is [`run`]'s.
//!
//! A prefix of a whole link is the kernel's, which finds out who is there; each neighbour that it
//! has found gets a route of its own.

mod change;
mod first;
mod given;
mod outlet;
mod routes;
mod run;
mod side;
mod status;
mod table;
mod view;
mod way;
mod world;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt, HashSet};
use lpm::{NextHop, Prefix};
use netdev::monitor::{Message, PolicyRule};

use crate::forward::Plane;
use crate::image::StoredRoutes;
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

/// What a new listing has shown: what it has not is gone.
#[derive(Debug, Default)]
struct Census {
    links: Heard<u32>,
    objects: Heard<u32>,
    neighbours: Heard<(u32, IpAddr)>,
    rules: Heard<PolicyRule>,
    addresses: Heard<(u32, Ipv4Addr)>,
}

#[derive(Debug)]
struct Heard<K> {
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
    /// word: it says nothing of IPv4 routes that go with a device, an address or a next hop.
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

impl<K: std::hash::Hash + Eq + Copy> Heard<K> {
    /// Whether a listing's entry is news.
    fn list(&mut self, key: K) -> bool {
        self.listed.insert(key);
        !self.changed.contains(&key)
    }

    fn change(&mut self, key: K) {
        self.changed.insert(key);
    }

    fn missing(&self, known: impl Iterator<Item = K>) -> Vec<K> {
        known
            .filter(|key| !self.listed.contains(key) && !self.changed.contains(key))
            .collect()
    }
}
