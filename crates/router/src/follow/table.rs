//! The routes of one family: the kernel's best route of each prefix, and the installed one.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt, HashSet};
use lpm::{NextHop, Prefix, Rib};
use netdev::monitor::Position;

use super::address_family::AddressFamily;
use super::kernel_state::KernelState;
use super::next_hop_table::{Key, NextHopId, NextHopTable};
use super::plane_writer::PlaneWriter;
use super::routes::{Rank, Route, Routes};
use super::shortage::{Fallback, Shortage};
use crate::forward::Plane;

/// No next hop.
const NONE: NextHopId = NextHopId::MAX;

#[derive(Debug)]
pub(super) struct Table<A: AddressFamily> {
    slots: HashMap<Prefix<A>, Slot>,
    /// Prefixes with routes, by length.
    lengths: [u32; 129],
    pub(super) next_hops: NextHopTable,
    /// Prefixes with a next hop in the plane.
    installed_count: usize,
    /// Usable neighbours, for which connected prefixes get host routes.
    neighbours: BTreeSet<(A, u32)>,
    pub(super) shortage: Shortage<A>,
    /// Whether the plane leaves all packets to the kernel.
    withheld: bool,
    sweep: Option<Sweep<A>>,
    generation: u8,
}

/// A dump in progress.
#[derive(Debug)]
struct Sweep<A: AddressFamily> {
    /// Prefixes that a notification changed meanwhile: the dump may have outdated routes of these.
    touched: HashSet<Prefix<A>>,
}

#[derive(Debug)]
struct Slot {
    routes: Routes,
    installed: NextHopId,
}

impl<A: AddressFamily> Table<A> {
    pub(super) fn new(limit: u16) -> Self {
        Self {
            slots: HashMap::new(),
            lengths: [0; 129],
            installed_count: 0,
            next_hops: NextHopTable::new(A::FAMILY, limit),
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
        (known as usize, self.installed_count)
    }

    /// Adds a route, which takes over the caller's reference to its next hop.
    pub(super) fn add(&mut self, prefix: Prefix<A>, mut route: Route, position: Position) {
        if let Some(sweep) = &mut self.sweep {
            sweep.touched.insert(prefix);
        }
        route.seen = self.generation;
        self.insert(prefix, route, position);
    }

    /// Adds a route of a dump, which may be older than the latest change.
    pub(super) fn add_listed(&mut self, prefix: Prefix<A>, mut route: Route) {
        let touched = self.sweep.as_ref().map(|sweep| &sweep.touched);
        if touched.is_some_and(|touched| touched.contains(&prefix)) {
            self.next_hops.drop_hold(route.next_hop);
            return;
        }
        route.seen = self.generation;
        self.insert(prefix, route, Position::Last);
    }

    /// Removes a route, and returns whether it existed. The caller keeps its reference to `route.next_hop`.
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
            .position(|known| known.is_like(route) && known.next_hop == route.next_hop);
        // IPv4 routes of a prefix differ in metric. An IPv6 route can lose a single hop.
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
            self.next_hops.drop_hold(gone.next_hop);
        }
    }

    /// Removes all routes whose next hop matches, and returns their prefixes.
    pub(super) fn remove_routes_by(&mut self, gone: &dyn Fn(&Key) -> bool) -> Vec<Prefix<A>> {
        let gone: HashSet<NextHopId> = self.next_hops.matching(gone).collect();
        let mut changed = Vec::new();
        if gone.is_empty() {
            return changed;
        }
        for (prefix, slot) in &self.slots {
            let mut routes = slot.routes.as_slice().iter();
            if routes.any(|route| gone.contains(&route.next_hop)) {
                changed.push(*prefix);
            }
        }
        changed.sort_unstable();
        for prefix in &changed {
            while let Some(at) = self.position(*prefix, |route| gone.contains(&route.next_hop)) {
                self.remove_at(*prefix, at);
            }
        }
        changed
    }

    /// Begins a dump. `end_sweep` removes routes that were not added since.
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
        let old = |route: &Route| {
            route.seen != now && !matches!(route.rank, Rank::Reserved | Rank::Static)
        };
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

    /// Notes whether a neighbour is usable. Returns its host prefix.
    pub(super) fn set_neighbour(&mut self, address: A, ifindex: u32, usable: bool) -> Prefix<A> {
        if usable && address.is_routed() {
            self.neighbours.insert((address, ifindex));
        } else {
            self.neighbours.remove(&(address, ifindex));
        }
        host(address)
    }

    /// Host prefixes of the usable neighbours within a prefix, without the prefix itself.
    pub(super) fn neighbours_within(&self, prefix: Prefix<A>) -> Vec<Prefix<A>> {
        let range = (prefix.first(), 0)..=(prefix.last(), u32::MAX);
        let within = self.neighbours.range(range);
        let hosts = within.map(|(address, _)| host(*address));
        hosts.filter(|host| *host != prefix).collect()
    }

    /// The prefix and next hop that the kernel chooses for an address.
    pub(super) fn lookup(&self, address: A) -> Option<(Prefix<A>, NextHopId)> {
        (0..=A::BITS).rev().find_map(|len| {
            if self.lengths[usize::from(len)] == 0 {
                return None;
            }
            let prefix = Prefix::containing(address, len).ok()?;
            let best = self.routes(prefix).first()?;
            Some((prefix, best.next_hop))
        })
    }

    /// The installed prefix that an address matches, and its next hop.
    pub(super) fn installed_prefix(&self, address: A) -> Option<(Prefix<A>, NextHopId)> {
        (0..=A::BITS).rev().find_map(|len| {
            let prefix = Prefix::containing(address, len).ok()?;
            let slot = self.slots.get(&prefix)?;
            (slot.installed != NONE).then_some((prefix, slot.installed))
        })
    }

    pub(super) fn installed_for(&self, address: A) -> Option<NextHopId> {
        self.installed_prefix(address).map(|(_, next_hop)| next_hop)
    }

    /// All installed prefixes and their next hops.
    pub(super) fn installed(&self) -> impl Iterator<Item = (Prefix<A>, NextHopId)> {
        let slots = self.slots.iter();
        slots
            .filter(|(_, slot)| slot.installed != NONE)
            .map(|(prefix, slot)| (*prefix, slot.installed))
    }

    /// Installs the current best route of a prefix. Where the plane has no room, packets are left to the
    /// kernel, and so are those that a covering prefix would forward instead.
    pub(super) fn reconcile<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) {
        let mut due = vec![prefix];
        while let Some(prefix) = due.pop() {
            let mut before = self.shortage.take(prefix);
            if before == Some(Fallback::PuntEntry(prefix)) {
                self.shortage.remove_punt_entry(prefix);
                before = None;
            }
            if self.update_plane(prefix, state, out) {
                // Missing prefixes within this one are now covered by it.
                due.extend(self.shortage.within(prefix));
            } else {
                let fallback = self.fallback(prefix, state, out);
                self.shortage.add(prefix, fallback);
            }
            if let Some(Fallback::PuntEntry(punt_entry)) = before
                && self.shortage.remove_punt_entry(punt_entry)
            {
                self.update_plane(punt_entry, state, out);
            }
        }
        let withheld = self.shortage.has_unavailable();
        if withheld != self.withheld && out.withhold(A::FAMILY, withheld) {
            self.withheld = withheld;
        }
    }

    /// Installs the current best route of a prefix. Returns whether the plane accepted it.
    fn update_plane<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) -> bool {
        let desired = self.desired(prefix, state);
        let before = self.slots.get(&prefix).map_or(NONE, |slot| slot.installed);
        let after = desired.unwrap_or(NONE);
        let placed = before == after || self.install(prefix, before, after, state, out);
        if let Some(next_hop) = desired {
            self.next_hops.drop_hold(next_hop);
        }
        let slot = self.slots.get(&prefix);
        if slot.is_some_and(|slot| slot.installed == NONE && slot.routes.as_slice().is_empty()) {
            self.slots.remove(&prefix);
        }
        placed
    }

    /// Leaves packets to a prefix to the kernel: the plane has no room for it or cannot change it.
    fn fallback<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
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
            if self.update_plane(candidate, state, out) {
                return Fallback::PuntEntry(candidate);
            }
            self.shortage.remove_punt_entry(candidate);
        }
        Fallback::Unavailable
    }

    /// The longest installed prefix that covers another one.
    fn installed_around(&self, prefix: Prefix<A>) -> Option<Prefix<A>> {
        (0..prefix.len()).rev().find_map(|len| {
            let around = Prefix::containing(prefix.first(), len).ok()?;
            let slot = self.slots.get(&around)?;
            (slot.installed != NONE).then_some(around)
        })
    }

    /// Installs all routes. The next hops of most routes are numbered first, and covering prefixes are
    /// installed before the prefixes within.
    pub(super) fn reconcile_all<P: Plane>(
        &mut self,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) {
        let mut prefixes: Vec<Prefix<A>> = self.slots.keys().copied().collect();
        prefixes.extend(self.neighbours.iter().map(|(address, _)| host(*address)));
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut counts: HashMap<NextHopId, usize> = HashMap::new();
        for prefix in &prefixes {
            if let Some(next_hop) = self.desired(*prefix, state) {
                // Each next hop has one reference while it is counted.
                let count = counts.entry(next_hop).or_default();
                *count += 1;
                if *count > 1 {
                    self.next_hops.drop_hold(next_hop);
                }
            }
        }
        let mut ranked: Vec<(usize, NextHopId)> = counts.into_iter().map(|(w, n)| (n, w)).collect();
        ranked.sort_unstable_by_key(|(count, next_hop)| (std::cmp::Reverse(*count), *next_hop));
        let numbered = ranked.iter();
        let numbered: Vec<bool> = numbered
            .map(|(_, next_hop)| self.next_hops.acquire(*next_hop, state, out).is_some())
            .collect();
        for prefix in prefixes {
            self.reconcile(prefix, state, out);
        }
        for ((_, next_hop), numbered) in ranked.into_iter().zip(numbered) {
            if numbered {
                self.next_hops.release(next_hop, out);
            }
            self.next_hops.drop_hold(next_hop);
        }
    }

    /// Adds static routes, which the plane already has, with these next hops.
    pub(super) fn add_installed(&mut self, routes: &Rib<A>, next_hops: &[NextHopId]) {
        self.slots.reserve(routes.len());
        for (prefix, hop) in routes {
            let Some(&next_hop) = next_hops.get(usize::from(hop.get()) - 1) else {
                continue;
            };
            self.next_hops.add_installed(next_hop);
            self.insert(
                prefix,
                Route::new(Rank::Static, 0, 0, next_hop),
                Position::Last,
            );
            if let Some(slot) = self.slots.get_mut(&prefix) {
                slot.installed = next_hop;
                self.installed_count += 1;
            }
        }
    }

    /// As `reconcile_all`, without prefixes whose static route is unchanged.
    pub(super) fn reconcile_changed<P: Plane>(
        &mut self,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) {
        let is_static = |slot: &Slot| match &slot.routes {
            Routes::One(route) => route.rank == Rank::Static,
            _ => false,
        };
        let rest = self.slots.iter().filter(|(_, slot)| !is_static(slot));
        let mut prefixes: Vec<Prefix<A>> = rest.map(|(prefix, _)| *prefix).collect();
        prefixes.extend(self.neighbours.iter().map(|(address, _)| host(*address)));
        prefixes.sort_unstable();
        prefixes.dedup();
        for prefix in prefixes {
            self.reconcile(prefix, state, out);
        }
    }

    /// Retries prefixes for which the plane had no room.
    pub(super) fn retry<P: Plane>(&mut self, state: &mut KernelState, out: &mut PlaneWriter<P>) {
        let mut unplaced = self.shortage.all();
        unplaced.extend(self.shortage.take_without_number());
        for prefix in unplaced {
            self.reconcile(prefix, state, out);
        }
    }

    /// The next hop that a prefix should have, with a reference for the caller.
    fn desired(&mut self, prefix: Prefix<A>, state: &KernelState) -> Option<NextHopId> {
        if self.shortage.is_punt_entry(prefix) {
            return Some(self.next_hops.hold(&Key::Kernel));
        }
        if prefix.len() == A::BITS
            && let Some(next_hop) = self.neighbour_next_hop(prefix, state)
        {
            return Some(next_hop);
        }
        let routes = self.routes(prefix);
        let best = routes.first()?.next_hop;
        let key = if routes.iter().any(|route| route.variant != 0) {
            // The plane cannot distinguish the packets of a route that is limited to a source or type of
            // service.
            Key::Kernel
        } else {
            self.next_hops.key(best).clone()
        };
        Some(self.next_hops.hold(&key))
    }

    /// The next hop of a usable neighbour, if its address is routed to its connected link.
    fn neighbour_next_hop(&mut self, host: Prefix<A>, state: &KernelState) -> Option<NextHopId> {
        let address = host.first();
        self.neighbours
            .range((address, 0)..=(address, u32::MAX))
            .next()?;
        let (_, next_hop) = self.lookup(address)?;
        let key = self.next_hops.key(next_hop);
        let (ifindex, mtu) = (key.connected(state)?, key.mtu());
        if !self.neighbours.contains(&(address, ifindex)) {
            return None;
        }
        let hop = netdev::monitor::Hop {
            gateway: Some(address.ip()),
            ifindex,
            weight: 1,
        };
        Some(self.next_hops.hold(&Key::single(hop, mtu)))
    }

    /// Returns whether the plane accepted the route.
    fn install<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        before: NextHopId,
        after: NextHopId,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) -> bool {
        // The new next hop is set before the prefix, and the old one is released after it.
        let mut placed = after;
        let mut hop = None;
        if after != NONE {
            hop = self.next_hops.acquire(after, state, out);
            if hop.is_none() {
                (placed, hop) = self.kernel_instead(prefix, state, out);
            }
        }
        if !out.route(prefix, hop) {
            if placed != NONE {
                self.next_hops.release(placed, out);
            }
            return false;
        }
        let slot = self.slots.entry(prefix).or_insert(Slot {
            routes: Routes::None,
            installed: NONE,
        });
        slot.installed = placed;
        self.installed_count += usize::from(placed != NONE);
        self.installed_count -= usize::from(before != NONE);
        if before != NONE {
            self.next_hops.release(before, out);
        }
        true
    }

    /// For want of a next-hop number. Without its own entry, the prefix would take the next hop of a shorter
    /// one.
    fn kernel_instead<P: Plane>(
        &mut self,
        prefix: Prefix<A>,
        state: &mut KernelState,
        out: &mut PlaneWriter<P>,
    ) -> (NextHopId, Option<NextHop>) {
        self.shortage.add_without_number(prefix);
        let kernel = self.next_hops.hold(&Key::Kernel);
        let hop = self.next_hops.acquire(kernel, state, out);
        self.next_hops.drop_hold(kernel);
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
            .insert(route, position, &self.next_hops, A::BITS == 128)
        {
            self.next_hops.drop_hold(gone.next_hop);
        }
    }
}

fn host<A: AddressFamily>(address: A) -> Prefix<A> {
    Prefix::new(address, A::BITS).unwrap_or(Prefix::DEFAULT)
}
