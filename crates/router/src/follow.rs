//! Translates the kernel's routing state into calls of a [`Plane`]. The calls are ordered so that during a
//! change no packet takes a next hop that neither the old nor the new state gives it. [`run`] reads the
//! tables.
//!
//! A connected prefix is left to the kernel, which resolves neighbours. Each resolved neighbour gets a host
//! route of its own.

mod address_family;
mod dump_sync;
pub(crate) mod fifo_priority;
mod kernel_route;
mod kernel_state;
mod next_hop_table;
mod plane_writer;
mod routes;
mod run;
mod shortage;
mod static_routes;
mod status;
mod table;
mod view;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt};
use lpm::{NextHop, Prefix};
use netdev::monitor::{Entry, Message, NextHopObject, PolicyRule, TableRoute};
use netdev::{Link, Neighbour};

use crate::forward::Plane;
use crate::image::ImageRoutes;
use address_family::AddressFamily;
use dump_sync::{DumpKeys, DumpSync};
use kernel_state::KernelState;
use next_hop_table::Key;
use plane_writer::PlaneWriter;
use routes::{Rank, Route};
use table::Table;

pub use run::{Follower, Options, RunError};
pub use status::{Changes, Lag, Numbers, PlaneCalls, Routes, Status, SyncState};
pub use view::{NamedPort, NextHopView, RouteView};

/// Minimum time between two probes of a neighbour.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// The kernel's tables as far as they are known, and the plane that is kept in step with them.
#[derive(Debug)]
pub struct Follow<P> {
    state: KernelState,
    v4: Table<u32>,
    v6: Table<u128>,
    out: PlaneWriter<P>,
    rules: BTreeSet<PolicyRule>,
    dump: Option<DumpSync>,
    /// False until the first dump is complete: until then the plane is not called.
    loaded: bool,
    /// The kernel may have changed something without a notification.
    needs_resync: bool,
    probed: HashMap<(u32, IpAddr), Instant>,
    changes: Changes,
    listings: u64,
}

/// Whether a message is a notification or an entry of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Change,
    Listing,
}

impl<P: Plane> Follow<P> {
    /// Starts with an empty plane that has `next_hops` numbers for each family.
    pub fn new(plane: P, next_hops: u16) -> Self {
        let mut follow = Self {
            state: KernelState::default(),
            v4: Table::new(next_hops),
            v6: Table::new(next_hops),
            out: PlaneWriter::new(plane),
            rules: BTreeSet::new(),
            dump: None,
            loaded: false,
            needs_resync: false,
            probed: HashMap::new(),
            changes: Changes::default(),
            listings: 0,
        };
        add_reserved(&mut follow.v4);
        add_reserved(&mut follow.v6);
        follow
    }

    /// Starts with static routes, which the plane already has under their numbers. Of the kernel's routes,
    /// only local and connected ones are then used.
    pub fn with(plane: P, next_hops: u16, routes: &ImageRoutes) -> Self {
        let mut follow = Self::new(plane, next_hops);
        follow.state = KernelState::with(routes);
        let Self {
            state, v4, v6, out, ..
        } = &mut follow;
        let next_hops = v4.next_hops.number(routes.hops4.len(), state, out);
        v4.add_installed(&routes.v4, &next_hops);
        let next_hops = v6.next_hops.number(routes.hops6.len(), state, out);
        v6.add_installed(&routes.v6, &next_hops);
        follow
    }

    /// Continues with another plane, which already has these routes. It still has to be told the next hops.
    fn onto<Q: Plane>(self, plane: Q) -> Follow<Q> {
        let mut out = PlaneWriter::new(plane);
        let (mut state, mut v4, mut v6) = (self.state, self.v4, self.v6);
        v4.next_hops.write_all(&mut state, &mut out);
        v6.next_hops.write_all(&mut state, &mut out);
        Follow {
            state,
            v4,
            v6,
            out,
            rules: self.rules,
            dump: self.dump,
            loaded: self.loaded,
            needs_resync: self.needs_resync,
            probed: self.probed,
            changes: self.changes,
            listings: self.listings,
        }
    }

    /// Handles a notification. Notifications must come in the kernel's order.
    pub fn change(&mut self, message: &Message<'_>) {
        self.take(message, Origin::Change);
    }

    /// Begins a new dump of all tables.
    pub fn begin_listing(&mut self) {
        self.dump = Some(DumpSync::default());
        self.needs_resync = false;
        self.state.begin_listing();
        self.v4.begin_sweep();
        self.v6.begin_sweep();
    }

    /// Handles an entry of the dump. Notifications may come in between; each of them is newer than the dump.
    pub fn listed(&mut self, message: &Message<'_>) {
        self.take(message, Origin::Listing);
    }

    /// Ends the dump. Entries that were neither dumped nor changed meanwhile are removed.
    pub fn end_listing(&mut self) {
        self.listings += 1;
        if let Some(dump) = self.dump.take() {
            self.forget_unlisted(&dump);
        }
        let (v4, v6) = (self.v4.end_sweep(), self.v6.end_sweep());
        self.state.end_listing();
        if self.loaded {
            self.reconcile4(&v4);
            self.reconcile6(&v6);
            self.move_gateways();
            return;
        }
        self.loaded = true;
        if self.state.has_static_routes() {
            self.refresh(|_| false);
            self.v4.reconcile_changed(&mut self.state, &mut self.out);
            self.v6.reconcile_changed(&mut self.state, &mut self.out);
        } else {
            self.v4.reconcile_all(&mut self.state, &mut self.out);
            self.v6.reconcile_all(&mut self.state, &mut self.out);
        }
    }

    /// Whether a new dump is needed because the kernel may have changed something without a notification: it
    /// sends none for IPv4 routes that are removed with a device, an address or a next hop.
    pub fn needs_resync(&self) -> bool {
        self.needs_resync
    }

    /// Marks the end of a batch of changes: released next-hop numbers may be used again.
    pub fn end_batch(&mut self) {
        self.v4.next_hops.end_batch();
        self.v6.next_hops.end_batch();
    }

    /// Neighbours that the kernel should probe now. Packets that the plane forwards do not confirm a
    /// neighbour.
    pub fn to_probe(&mut self, now: Instant) -> Vec<(u32, IpAddr)> {
        if !self.loaded {
            return Vec::new();
        }
        self.probed
            .retain(|_, probed| now.duration_since(*probed) < PROBE_EVERY);
        let wanted = self
            .v4
            .next_hops
            .neighbours()
            .chain(self.v6.next_hops.neighbours());
        let due: BTreeSet<(u32, IpAddr)> = wanted
            .filter(|key| !self.probed.contains_key(key) && self.state.should_probe(key.0, key.1))
            .collect();
        self.probed.extend(due.iter().map(|key| (*key, now)));
        due.into_iter().collect()
    }

    /// Whether neighbour resolution of a gateway in use is still in progress.
    pub fn is_resolving(&self) -> bool {
        let mut wanted = self
            .v4
            .next_hops
            .neighbours()
            .chain(self.v6.next_hops.neighbours());
        wanted.any(|(ifindex, address)| self.state.is_resolving(ifindex, address))
    }

    /// Retries prefixes for which the plane had no room.
    pub fn retry(&mut self) {
        self.v4.retry(&mut self.state, &mut self.out);
        self.v6.retry(&mut self.state, &mut self.out);
    }

    /// The number of the next hop that the plane has for an address.
    pub fn next_hop_of(&self, address: IpAddr) -> Option<NextHop> {
        match address {
            IpAddr::V4(address) => number(&self.v4, address.to_bits()),
            IpAddr::V6(address) => number(&self.v6, address.to_bits()),
        }
    }

    pub fn plane(&self) -> &P {
        &self.out.plane
    }

    /// For rules and counters.
    pub fn plane_mut(&mut self) -> &mut P {
        &mut self.out.plane
    }

    fn reconcile4(&mut self, prefixes: &[Prefix<u32>]) {
        reconcile(prefixes, &mut self.v4, &mut self.state, &mut self.out);
    }

    fn reconcile6(&mut self, prefixes: &[Prefix<u128>]) {
        reconcile(prefixes, &mut self.v6, &mut self.state, &mut self.out);
    }

    /// The ports of those of the named devices that exist.
    pub fn ports(&self, names: &[String]) -> Vec<NamedPort> {
        view::ports(&self.state, names)
    }

    /// Installed routes in order: the one that `of` matches, or the first `limit` of all.
    pub fn routes(&self, of: Option<IpAddr>, limit: usize) -> Vec<RouteView> {
        match of {
            Some(IpAddr::V4(address)) => {
                view::routes(&self.v4, &self.state, Some(address.to_bits()), 1)
            }
            Some(IpAddr::V6(address)) => {
                view::routes(&self.v6, &self.state, Some(address.to_bits()), 1)
            }
            None => {
                let mut found = view::routes(&self.v4, &self.state, None, limit);
                let left = limit - found.len();
                found.extend(view::routes(&self.v6, &self.state, None, left));
                found
            }
        }
    }

    /// All next hops that have numbers, by family and number.
    pub fn next_hops(&self) -> Vec<NextHopView> {
        let mut hops = view::next_hops(&self.v4, &self.state);
        hops.extend(view::next_hops(&self.v6, &self.state));
        hops.sort_by_key(|hop| (hop.family, hop.number));
        hops
    }

    /// Counts of the tables and of calls to the plane. The reader adds overruns, lag and its state.
    pub fn status(&self) -> Status {
        let plane_writer::PlaneCalls {
            routes,
            next_hops,
            refusals,
        } = self.out.calls;
        Status {
            sync: match (self.loaded, &self.dump) {
                (false, _) => SyncState::Loading,
                (true, None) => SyncState::Following,
                (true, Some(_)) => SyncState::Listing,
            },
            ipv4: status::routes_of(&self.v4),
            ipv6: status::routes_of(&self.v6),
            changes: self.changes,
            plane_calls: PlaneCalls {
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
                if self.is_current(origin, |dump| &mut dump.links, link.index) {
                    self.link(link, gone);
                }
            }
            Entry::Neighbour(neighbour) => {
                let key = (neighbour.ifindex, neighbour.address);
                if self.is_current(origin, |dump| &mut dump.neighbours, key) {
                    self.neighbour(neighbour, gone);
                }
            }
            Entry::NextHop(object) => {
                if self.is_current(origin, |dump| &mut dump.objects, object.id) {
                    self.object(object, gone);
                }
            }
            Entry::Rule(rule) => {
                if self.is_current(origin, |dump| &mut dump.rules, rule) {
                    self.rule(rule, gone);
                }
            }
            Entry::Address(address) => {
                self.needs_resync |= gone && self.loaded;
                if let IpAddr::V4(near) = address.address {
                    let key = (address.ifindex, near);
                    if self.is_current(origin, |dump| &mut dump.addresses, key) {
                        self.address(address.ifindex, near, gone);
                    }
                }
            }
            Entry::Route(route)
                if route.table != kernel_route::MAIN || self.state.accepts(&route, gone) =>
            {
                match route.destination {
                    IpAddr::V4(_) => self.route4(&route, gone, origin),
                    IpAddr::V6(_) => self.route6(&route, gone, origin),
                }
                self.move_gateways();
            }
            // Static routes replace it.
            Entry::Route(_) => {}
        }
    }

    fn move_gateways(&mut self) {
        if self.loaded && self.state.gateways_moved() {
            self.refresh(|_| false);
        }
    }

    fn forget_unlisted(&mut self, dump: &DumpSync) {
        let links = self.state.links().map(|link| link.index);
        for ifindex in dump.links.missing(links) {
            let link = Link {
                index: ifindex,
                ..Link::default()
            };
            self.link(&link, true);
        }
        for id in dump.objects.missing(self.state.objects()) {
            self.remove_objects(id);
        }
        for (ifindex, address) in dump.neighbours.missing(self.state.neighbours()) {
            self.remove_neighbour(ifindex, address);
        }
        for (ifindex, address) in dump.addresses.missing(self.state.addresses()) {
            self.address(ifindex, address, true);
        }
        for rule in dump.rules.missing(self.rules.iter().copied()) {
            self.rules.remove(&rule);
        }
    }

    /// Whether a message is current. An entry of a dump is outdated if a notification changed it since the
    /// dump began.
    fn is_current<K: std::hash::Hash + Eq + Copy>(
        &mut self,
        origin: Origin,
        of: impl Fn(&mut DumpSync) -> &mut DumpKeys<K>,
        key: K,
    ) -> bool {
        let Some(dump) = &mut self.dump else {
            return true;
        };
        match origin {
            Origin::Listing => of(dump).record(key),
            Origin::Change => {
                of(dump).mark_changed(key);
                true
            }
        }
    }

    fn link(&mut self, link: &Link, gone: bool) {
        let changed = if gone {
            self.state.remove_link(link.index)
        } else {
            self.state.set_link(link)
        };
        if !changed {
            return;
        }
        // Frames of a VLAN device leave by its lower device.
        let above = self.state.links();
        let above = above.filter(|above| above.vlan.is_some() && above.link == Some(link.index));
        let mut concerned: Vec<u32> = above.map(|above| above.index).collect();
        concerned.push(link.index);
        self.refresh(|key| concerned.iter().any(|at| key.leaves_by(*at)));
        if gone || !link.up {
            let lost: Vec<(u32, IpAddr)> = self.state.neighbours().collect();
            for (ifindex, address) in lost {
                if ifindex == link.index {
                    self.remove_neighbour(ifindex, address);
                }
            }
            self.remove_dead();
        }
        if gone || !link.up || !link.carrier {
            // The kernel removes these without a notification.
            let index = link.index;
            let gone = self
                .state
                .remove_objects(&|_, object| object.leaves_by(index));
            self.objects_gone(&gone);
        }
        self.needs_resync |= self.loaded;
    }

    fn neighbour(&mut self, neighbour: &Neighbour, gone: bool) {
        let (ifindex, address) = (neighbour.ifindex, neighbour.address);
        if gone {
            return self.remove_neighbour(ifindex, address);
        }
        if self.state.set_neighbour(neighbour) {
            self.neighbour_changed(ifindex, address);
        }
    }

    fn remove_neighbour(&mut self, ifindex: u32, address: IpAddr) {
        if self.state.remove_neighbour(ifindex, address) {
            self.neighbour_changed(ifindex, address);
        }
    }

    fn neighbour_changed(&mut self, ifindex: u32, address: IpAddr) {
        let Self {
            state, v4, v6, out, ..
        } = self;
        for next_hop in v4.next_hops.by_neighbour(ifindex, address) {
            v4.next_hops.refresh(next_hop, state, out);
        }
        for next_hop in v6.next_hops.by_neighbour(ifindex, address) {
            v6.next_hops.refresh(next_hop, state, out);
        }
        let usable = state.is_usable(ifindex, address);
        let loaded = self.loaded;
        if let Some(address) = u32::of(address) {
            let host = v4.set_neighbour(address, ifindex, usable);
            if loaded {
                v4.reconcile(host, state, out);
            }
        } else if let Some(address) = u128::of(address) {
            let host = v6.set_neighbour(address, ifindex, usable);
            if loaded {
                v6.reconcile(host, state, out);
            }
        }
    }

    /// Routes with a source address are removed with its local route, routes of a device with the device's
    /// last address.
    fn address(&mut self, ifindex: u32, address: Ipv4Addr, gone: bool) {
        if !gone {
            self.state.set_address(ifindex, address);
        } else if self.state.remove_address(ifindex, address) {
            let v4 = self.v4.remove_routes_by(&|key| match key {
                Key::Hops { hops, .. } => hops.iter().all(|hop| hop.ifindex == ifindex),
                _ => false,
            });
            if self.loaded {
                self.reconcile4(&v4);
            }
        }
    }

    fn object(&mut self, object: NextHopObject<'_>, gone: bool) {
        if gone {
            self.remove_objects(object.id);
        } else if self.state.set_object(object.id, object.meaning) {
            self.refresh(|_| false);
        }
    }

    fn remove_objects(&mut self, id: u32) {
        let gone = self.state.remove_objects(&|at, _| at == id);
        self.objects_gone(&gone);
    }

    fn objects_gone(&mut self, gone: &[u32]) {
        if gone.is_empty() {
            return;
        }
        self.refresh(|_| false);
        self.remove_routes_by(&|key| matches!(key, Key::Object { id, .. } if gone.contains(id)));
        self.needs_resync |= self.loaded;
    }

    /// Removes routes whose devices are all down. The kernel sends notifications for IPv6 only.
    fn remove_dead(&mut self) {
        let up: foldhash::HashSet<u32> = self
            .state
            .links()
            .filter(|link| self.state.is_up(link.index))
            .map(|link| link.index)
            .collect();
        self.remove_routes_by(&|key| match key {
            Key::Hops { hops, .. } => hops.iter().all(|hop| !up.contains(&hop.ifindex)),
            _ => false,
        });
    }

    fn remove_routes_by(&mut self, gone: &dyn Fn(&Key) -> bool) {
        let (v4, v6) = (
            self.v4.remove_routes_by(gone),
            self.v6.remove_routes_by(gone),
        );
        if self.loaded {
            self.reconcile4(&v4);
            self.reconcile6(&v6);
        }
    }

    /// Updates the next hops that `concerned` selects, and those of next-hop objects and static routes.
    fn refresh(&mut self, concerned: impl Fn(&Key) -> bool) {
        if !self.loaded {
            return;
        }
        let Self {
            state, v4, v6, out, ..
        } = self;
        kernel_route::refresh(v4, state, out, &concerned);
        kernel_route::refresh(v6, state, out, &concerned);
    }

    fn rule(&mut self, rule: PolicyRule, gone: bool) {
        if gone {
            self.rules.remove(&rule);
        } else {
            self.rules.insert(rule);
        }
    }

    fn route4(&mut self, route: &TableRoute<'_>, gone: bool, origin: Origin) {
        let Self { state, v4, out, .. } = self;
        let Some(prefix) = kernel_route::apply(v4, route, gone, origin, &mut self.needs_resync)
        else {
            return;
        };
        if !self.loaded {
            return;
        }
        reconcile(&[prefix], v4, state, out);
        let lost = gone && route.table == kernel_route::LOCAL && v4.routes(prefix).is_empty();
        if lost && prefix.len() == 32 {
            // The kernel sends no notification for routes with this source address.
            let address = route.destination;
            self.remove_routes_by(&|key| key.source() == Some(address));
        }
    }

    fn route6(&mut self, route: &TableRoute<'_>, gone: bool, origin: Origin) {
        let Self { state, v6, out, .. } = self;
        let prefix = kernel_route::apply(v6, route, gone, origin, &mut self.needs_resync);
        if let Some(prefix) = prefix
            && self.loaded
        {
            reconcile(&[prefix], v6, state, out);
        }
    }
}

/// Also reconciles the neighbours within each prefix, because a route to their link may have appeared or
/// disappeared.
fn reconcile<A: AddressFamily, P: Plane>(
    prefixes: &[Prefix<A>],
    table: &mut Table<A>,
    state: &mut KernelState,
    out: &mut PlaneWriter<P>,
) {
    for prefix in prefixes {
        table.reconcile(*prefix, state, out);
        for host in table.neighbours_within(*prefix) {
            table.reconcile(host, state, out);
        }
    }
}

fn add_reserved<A: AddressFamily>(table: &mut Table<A>) {
    for prefix in A::reserved_prefixes() {
        let next_hop = table.next_hops.hold(&Key::Local);
        let route = Route::new(Rank::Reserved, 0, 0, next_hop);
        table.add(prefix, route, netdev::monitor::Position::Last);
    }
}

fn number<A: AddressFamily>(table: &Table<A>, address: A) -> Option<NextHop> {
    let next_hop = table.installed_for(address)?;
    table.next_hops.get(next_hop).number
}
