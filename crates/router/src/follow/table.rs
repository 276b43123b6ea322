//! The routes of one family: which of a prefix's is the kernel's choice, and what is installed.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt, HashSet};
use lpm::{NextHop, Prefix, Rib};
use netdev::monitor::Position;

use super::outlet::Outlet;
use super::routes::{Rank, Route, Routes};
use super::shortage::{Fallback, Shortage};
use super::side::Side;
use super::way::{Key, WayId, Ways};
use super::world::World;
use crate::forward::Plane;

/// No way.
const NONE: WayId = WayId::MAX;

#[derive(Debug)]
pub(super) struct Table<A: Side> {
    slots: HashMap<Prefix<A>, Slot>,
    /// Prefixes with routes, by length.
    lengths: [u32; 129],
    pub(super) ways: Ways,
    /// Prefixes with a next hop in the plane.
    placed: usize,
    /// Usable neighbours, which prefixes of whole links come to.
    neighbours: BTreeSet<(A, u32)>,
    pub(super) shortage: Shortage<A>,
    /// Whether the plane leaves all packets to the kernel.
    withheld: bool,
    sweep: Option<Sweep<A>>,
    generation: u8,
}

/// Of a table that is read anew.
#[derive(Debug)]
struct Sweep<A: Side> {
    /// What changed meanwhile: the changes are right about it, and the listing may be old.
    touched: HashSet<Prefix<A>>,
}

#[derive(Debug)]
struct Slot {
    routes: Routes,
    installed: WayId,
}

impl<A: Side> Table<A> {
    pub(super) fn new(limit: u16) -> Self {
        Self {
            slots: HashMap::new(),
            lengths: [0; 129],
            placed: 0,
            ways: Ways::new(A::FAMILY, limit),
            neighbours: BTreeSet::new(),
            shortage: Shortage::new(),
            withheld: false,
            sweep: None,
            generation: 0,
        }
    }

    /// Number of prefixes with routes, and of those with a next hop in the plane.
    pub(super) fn len(&self) -> (usize, usize) {
        let known: u32 = self.lengths.iter().sum();
        (known as usize, self.placed)
    }

    /// Adds a route, whose way is held for it.
    pub(super) fn add(&mut self, prefix: Prefix<A>, mut route: Route, position: Position) {
        if let Some(sweep) = &mut self.sweep {
            sweep.touched.insert(prefix);
        }
        route.seen = self.generation;
        self.insert(prefix, route, position);
    }

    /// Adds a route of a listing, which may be older than the latest change.
    pub(super) fn add_listed(&mut self, prefix: Prefix<A>, mut route: Route) {
        let touched = self.sweep.as_ref().map(|sweep| &sweep.touched);
        if touched.is_some_and(|touched| touched.contains(&prefix)) {
            self.ways.drop_hold(route.way);
            return;
        }
        route.seen = self.generation;
        self.insert(prefix, route, Position::Last);
    }

    /// Takes a route away; whether it was there. The hold on `route.way` stays the caller's.
    pub(super) fn remove(&mut self, prefix: Prefix<A>, route: &Route) -> bool {
        if let Some(sweep) = &mut self.sweep {
            sweep.touched.insert(prefix);
        }
        let Some(slot) = self.slots.get_mut(&prefix) else {
            return false;
        };
        let known = slot.routes.as_slice();
        let exact = known
            .iter()
            .position(|known| known.is_like(route) && known.way == route.way);
        // An IPv4 route is one of those with its metric; of IPv6 a single hop may leave a route.
        let at = exact.or_else(|| {
            let only = known.iter().filter(|known| known.is_like(route)).count() == 1;
            let like = known.iter().position(|known| known.is_like(route));
            like.filter(|_| only && A::BITS == 32)
        });
        let Some(at) = at else {
            return false;
        };
        self.remove_at(prefix, at);
        true
    }

    /// The routes of a prefix, best first.
    pub(super) fn routes(&self, prefix: Prefix<A>) -> &[Route] {
        self.slots
            .get(&prefix)
            .map_or(&[], |slot| slot.routes.as_slice())
    }

    pub(super) fn remove_at(&mut self, prefix: Prefix<A>, at: usize) {
        if let Some(slot) = self.slots.get_mut(&prefix) {
            let gone = slot.routes.remove(at);
            if slot.routes.as_slice().is_empty() {
                self.lengths[usize::from(prefix.len())] -= 1;
            }
            self.ways.drop_hold(gone.way);
        }
    }

    /// Takes all routes away whose way is one of these; returns their prefixes.
    pub(super) fn remove_ways(&mut self, gone: &dyn Fn(&Key) -> bool) -> Vec<Prefix<A>> {
        let gone: HashSet<WayId> = self.ways.held(gone).collect();
        let mut changed = Vec::new();
        if gone.is_empty() {
            return changed;
        }
        for (prefix, slot) in &self.slots {
            let mut routes = slot.routes.as_slice().iter();
            if routes.any(|route| gone.contains(&route.way)) {
                changed.push(*prefix);
            }
        }
        changed.sort_unstable();
        for prefix in &changed {
            while let Some(at) = self.position(*prefix, |route| gone.contains(&route.way)) {
                self.remove_at(*prefix, at);
            }
        }
        changed
    }

    /// What is not added from here to `end_sweep` is gone.
    pub(super) fn begin_sweep(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.sweep = Some(Sweep {
            touched: HashSet::default(),
        });
    }

    /// Returns the prefixes that lost routes.
    pub(super) fn end_sweep(&mut self) -> Vec<Prefix<A>> {
        let Some(sweep) = self.sweep.take() else {
            return Vec::new();
        };
        let now = self.generation;
        let old =
            |route: &Route| route.seen != now && !matches!(route.rank, Rank::Kept | Rank::Given);
        let changed = self.slots.iter().filter(|(prefix, slot)| {
            slot.routes.as_slice().iter().any(old) && !sweep.touched.contains(*prefix)
        });
        let changed: Vec<Prefix<A>> = changed.map(|(prefix, _)| *prefix).collect();
        for prefix in &changed {
            while let Some(at) = self.position(*prefix, old) {
                self.remove_at(*prefix, at);
            }
        }
        changed
    }

    /// Whether a neighbour can be sent to directly has changed; returns the prefix concerned.
    pub(super) fn set_neighbour(&mut self, address: A, ifindex: u32, usable: bool) -> Prefix<A> {
        if usable && address.is_routed() {
            self.neighbours.insert((address, ifindex));
        } else {
            self.neighbours.remove(&(address, ifindex));
        }
        host(address)
    }

    /// Usable neighbours within a prefix, but for its only address.
    pub(super) fn neighbours_within(&self, prefix: Prefix<A>) -> Vec<Prefix<A>> {
        let range = (prefix.first(), 0)..=(prefix.last(), u32::MAX);
        let within = self.neighbours.range(range);
        let hosts = within.map(|(address, _)| host(*address));
        hosts.filter(|host| *host != prefix).collect()
    }

    /// The route of an address as the kernel chooses: the prefix, the way.
    pub(super) fn lookup(&self, address: A) -> Option<(Prefix<A>, WayId)> {
        (0..=A::BITS).rev().find_map(|len| {
            if self.lengths[usize::from(len)] == 0 {
                return None;
            }
            let prefix = Prefix::containing(address, len).ok()?;
            let best = self.routes(prefix).first()?;
            Some((prefix, best.way))
        })
    }

    /// What the plane has for an address.
    pub(super) fn installed_prefix(&self, address: A) -> Option<(Prefix<A>, WayId)> {
        (0..=A::BITS).rev().find_map(|len| {
            let prefix = Prefix::containing(address, len).ok()?;
            let slot = self.slots.get(&prefix)?;
            (slot.installed != NONE).then_some((prefix, slot.installed))
        })
    }

    pub(super) fn installed_for(&self, address: A) -> Option<WayId> {
        self.installed_prefix(address).map(|(_, way)| way)
    }

    /// What the plane has.
    pub(super) fn installed(&self) -> impl Iterator<Item = (Prefix<A>, WayId)> {
        let slots = self.slots.iter();
        slots
            .filter(|(_, slot)| slot.installed != NONE)
            .map(|(prefix, slot)| (*prefix, slot.installed))
    }

    /// Has the plane send packets to a prefix where they should go by now. Where it has no room for that they are the
    /// kernel's, and so is what a prefix around them would answer for.
    pub(super) fn settle<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        world: &mut World,
        out: &mut Outlet<P>,
    ) {
        let mut due = vec![prefix];
        while let Some(prefix) = due.pop() {
            let mut before = self.shortage.take(prefix);
            if before == Some(Fallback::PuntEntry(prefix)) {
                self.shortage.remove_punt_entry(prefix);
                before = None;
            }
            if self.place(prefix, world, out) {
                // What was answered for by a prefix around this one now is by this one.
                due.extend(self.shortage.within(prefix));
            } else {
                let fallback = self.fallback(prefix, world, out);
                self.shortage.add(prefix, fallback);
            }
            if let Some(Fallback::PuntEntry(punt_entry)) = before
                && self.shortage.remove_punt_entry(punt_entry)
            {
                self.place(punt_entry, world, out);
            }
        }
        let withheld = self.shortage.has_unavailable();
        if withheld != self.withheld && out.withhold(A::FAMILY, withheld) {
            self.withheld = withheld;
        }
    }

    /// Has the plane send packets to a prefix where they should go by now; whether it does.
    fn place<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> bool {
        let desired = self.desired(prefix, world);
        let before = self.slots.get(&prefix).map_or(NONE, |slot| slot.installed);
        let after = desired.unwrap_or(NONE);
        let placed = before == after || self.install(prefix, before, after, world, out);
        if let Some(way) = desired {
            self.ways.drop_hold(way);
        }
        let slot = self.slots.get(&prefix);
        if slot.is_some_and(|slot| slot.installed == NONE && slot.routes.as_slice().is_empty()) {
            self.slots.remove(&prefix);
        }
        placed
    }

    /// Has the kernel get the packets to a prefix that the plane has no room for, or whose answer it cannot change.
    fn fallback<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> Fallback<A> {
        let stale = self.slots.get(&prefix);
        let stale = stale.is_some_and(|slot| slot.installed != NONE);
        let cover = self.installed_around(prefix);
        let mut candidates = Vec::new();
        if stale {
            candidates.push(prefix);
        } else {
            let Some(cover) = cover else {
                return Fallback::Uncovered;
            };
            let between = |len: &&u8| (cover.len() + 1..prefix.len()).contains(*len);
            let coarse = A::COARSE.iter().filter(between);
            candidates
                .extend(coarse.filter_map(|len| Prefix::containing(prefix.first(), *len).ok()));
            candidates.push(cover);
        }
        for candidate in candidates {
            self.shortage.add_punt_entry(candidate);
            if self.place(candidate, world, out) {
                return Fallback::PuntEntry(candidate);
            }
            self.shortage.remove_punt_entry(candidate);
        }
        Fallback::Unavailable
    }

    /// The longest prefix around another one that is in the plane.
    fn installed_around(&self, prefix: Prefix<A>) -> Option<Prefix<A>> {
        (0..prefix.len()).rev().find_map(|len| {
            let around = Prefix::containing(prefix.first(), len).ok()?;
            let slot = self.slots.get(&around)?;
            (slot.installed != NONE).then_some(around)
        })
    }

    /// All that is desired, the ways of most routes first in number, each prefix after those
    /// around it.
    pub(super) fn settle_all<P: Plane>(&mut self, world: &mut World, out: &mut Outlet<P>) {
        let mut prefixes: Vec<Prefix<A>> = self.slots.keys().copied().collect();
        prefixes.extend(self.neighbours.iter().map(|(address, _)| host(*address)));
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut counts: HashMap<WayId, usize> = HashMap::new();
        for prefix in &prefixes {
            if let Some(way) = self.desired(*prefix, world) {
                // Each is held once for as long as it is counted.
                let count = counts.entry(way).or_default();
                *count += 1;
                if *count > 1 {
                    self.ways.drop_hold(way);
                }
            }
        }
        let mut ranked: Vec<(usize, WayId)> = counts.into_iter().map(|(w, n)| (n, w)).collect();
        ranked.sort_unstable_by_key(|(count, way)| (std::cmp::Reverse(*count), *way));
        let numbered = ranked.iter();
        let numbered: Vec<bool> = numbered
            .map(|(_, way)| self.ways.acquire(*way, world, out).is_some())
            .collect();
        for prefix in prefixes {
            self.settle(prefix, world, out);
        }
        for ((_, way), numbered) in ranked.into_iter().zip(numbered) {
            if numbered {
                self.ways.release(way, out);
            }
            self.ways.drop_hold(way);
        }
    }

    /// Takes routes in that the plane has already, by these ways.
    pub(super) fn give(&mut self, routes: &Rib<A>, ways: &[WayId]) {
        self.slots.reserve(routes.len());
        for (prefix, hop) in routes {
            let Some(&way) = ways.get(usize::from(hop.get()) - 1) else {
                continue;
            };
            self.ways.give(way);
            self.insert(prefix, Route::new(Rank::Given, 0, 0, way), Position::Last);
            if let Some(slot) = self.slots.get_mut(&prefix) {
                slot.installed = way;
                self.placed += 1;
            }
        }
    }

    /// As `settle_all`, of what is not as it was given.
    pub(super) fn settle_rest<P: Plane>(&mut self, world: &mut World, out: &mut Outlet<P>) {
        let given = |slot: &Slot| match &slot.routes {
            Routes::One(route) => route.rank == Rank::Given,
            _ => false,
        };
        let rest = self.slots.iter().filter(|(_, slot)| !given(slot));
        let mut prefixes: Vec<Prefix<A>> = rest.map(|(prefix, _)| *prefix).collect();
        prefixes.extend(self.neighbours.iter().map(|(address, _)| host(*address)));
        prefixes.sort_unstable();
        prefixes.dedup();
        for prefix in prefixes {
            self.settle(prefix, world, out);
        }
    }

    /// Tries again what the plane had no room for.
    pub(super) fn retry<P: Plane>(&mut self, world: &mut World, out: &mut Outlet<P>) {
        let mut unplaced = self.shortage.all();
        unplaced.extend(self.shortage.take_without_number());
        for prefix in unplaced {
            self.settle(prefix, world, out);
        }
    }

    /// The way that packets to a prefix should take, held for the caller.
    fn desired(&mut self, prefix: Prefix<A>, world: &World) -> Option<WayId> {
        if self.shortage.is_punt_entry(prefix) {
            return Some(self.ways.hold(&Key::Kernel));
        }
        if prefix.len() == A::BITS
            && let Some(way) = self.neighbour_way(prefix, world)
        {
            return Some(way);
        }
        let routes = self.routes(prefix);
        let best = routes.first()?.way;
        let key = if routes.iter().any(|route| route.variant != 0) {
            // What some packets to the prefix do, the plane cannot tell from what others do.
            Key::Kernel
        } else {
            self.ways.key(best).clone()
        };
        Some(self.ways.hold(&key))
    }

    /// The way to a usable neighbour, where its address is routed to its link as a whole.
    fn neighbour_way(&mut self, host: Prefix<A>, world: &World) -> Option<WayId> {
        let address = host.first();
        self.neighbours
            .range((address, 0)..=(address, u32::MAX))
            .next()?;
        let (_, way) = self.lookup(address)?;
        let key = self.ways.key(way);
        let (ifindex, mtu) = (key.connected(world)?, key.mtu());
        if !self.neighbours.contains(&(address, ifindex)) {
            return None;
        }
        let hop = netdev::monitor::Hop {
            gateway: Some(address.ip()),
            ifindex,
            weight: 1,
        };
        Some(self.ways.hold(&Key::one(hop, mtu)))
    }

    /// Whether the plane has taken it.
    fn install<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        before: WayId,
        after: WayId,
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> bool {
        // The new way has its meaning before the prefix does, and the old one loses it after.
        let mut placed = after;
        let mut hop = None;
        if after != NONE {
            hop = self.ways.acquire(after, world, out);
            if hop.is_none() {
                (placed, hop) = self.kernel_instead(prefix, world, out);
            }
        }
        if !out.route(prefix, hop) {
            if placed != NONE {
                self.ways.release(placed, out);
            }
            return false;
        }
        let slot = self.slots.entry(prefix).or_insert(Slot {
            routes: Routes::None,
            installed: NONE,
        });
        slot.installed = placed;
        self.placed += usize::from(placed != NONE);
        self.placed -= usize::from(before != NONE);
        if before != NONE {
            self.ways.release(before, out);
        }
        true
    }

    /// Where there is no number left: longer prefixes must not fall to shorter ones' next hops.
    fn kernel_instead<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        world: &mut World,
        out: &mut Outlet<P>,
    ) -> (WayId, Option<NextHop>) {
        self.shortage.add_without_number(prefix);
        let kernel = self.ways.hold(&Key::Kernel);
        let hop = self.ways.acquire(kernel, world, out);
        self.ways.drop_hold(kernel);
        (hop.map_or(NONE, |_| kernel), hop)
    }

    fn position(&self, prefix: Prefix<A>, of: impl Fn(&Route) -> bool) -> Option<usize> {
        self.routes(prefix).iter().position(of)
    }

    fn insert(&mut self, prefix: Prefix<A>, route: Route, position: Position) {
        let slot = self.slots.entry(prefix).or_insert(Slot {
            routes: Routes::None,
            installed: NONE,
        });
        if slot.routes.as_slice().is_empty() {
            self.lengths[usize::from(prefix.len())] += 1;
        }
        if let Some(gone) = slot
            .routes
            .insert(route, position, &self.ways, A::BITS == 128)
        {
            self.ways.drop_hold(gone.way);
        }
    }
}

fn host<A: Side>(address: A) -> Prefix<A> {
    Prefix::new(address, A::BITS).unwrap_or(Prefix::DEFAULT)
}
