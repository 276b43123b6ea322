//! Kernel routes as entries of a prefix table.

use std::hash::BuildHasher;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use lpm::Prefix;
use netdev::monitor::{Hop, Kind, TableRoute};

use super::Origin;
use super::address_family::AddressFamily;
use super::kernel_state::KernelState;
use super::next_hop_table::{Key, NextHopId};
use super::plane_writer::PlaneWriter;
use super::routes::{Rank, Route};
use super::table::Table;
use crate::forward::Plane;

/// `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`
pub(super) const MAIN: u32 = 254;
pub(super) const LOCAL: u32 = 255;

/// Adds or removes a route. Returns the prefix if its best route may have changed.
pub(super) fn apply<A: AddressFamily>(
    table: &mut Table<A>,
    route: &TableRoute<'_>,
    gone: bool,
    origin: Origin,
    needs_resync: &mut bool,
) -> Option<Prefix<A>> {
    let rank = match route.table {
        LOCAL => Rank::Local,
        MAIN => Rank::Main,
        _ => return None,
    };
    let prefix = Prefix::containing(A::of(route.destination)?, route.prefix_len).ok()?;
    let next_hop = table.next_hops.hold(&key(route));
    let new = Route::new(rank, route.metric, variant(route), next_hop);
    match (gone, origin) {
        (false, Origin::Change) => table.add(prefix, new, route.position),
        (false, Origin::Listing) => table.add_listed(prefix, new),
        (true, _) => {
            let known = table.remove(prefix, &new) || remove_hops(table, prefix, &new, route);
            table.next_hops.drop_hold(next_hop);
            // Its device's removal has already removed it, or a notification was missed.
            *needs_resync |= !known;
        }
    }
    Some(prefix)
}

/// Removes some hops of an IPv6 multipath route, which keeps the others.
fn remove_hops<A: AddressFamily>(
    table: &mut Table<A>,
    prefix: Prefix<A>,
    gone: &Route,
    route: &TableRoute<'_>,
) -> bool {
    let mut routes = table.routes(prefix).iter().enumerate();
    let found = routes.find_map(|(at, known)| {
        let same =
            (known.rank, known.metric, known.variant) == (gone.rank, gone.metric, gone.variant);
        let Key::Hops { hops, mtu, source } = table.next_hops.key(known.next_hop) else {
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
    let next_hop: NextHopId = table.next_hops.hold(&key);
    table.remove_at(prefix, at);
    let left = Route::new(known.rank, known.metric, known.variant, next_hop);
    table.add(prefix, left, netdev::monitor::Position::First);
    true
}

/// Updates the next hops that `concerned` selects, and those of next-hop objects and static routes.
pub(super) fn refresh<A: AddressFamily, P: Plane>(
    table: &mut Table<A>,
    state: &mut KernelState,
    out: &mut PlaneWriter<P>,
    concerned: &impl Fn(&Key) -> bool,
) {
    let numbered = table.next_hops.numbered();
    let concerned = numbered.filter(|(_, next_hop)| match &next_hop.key {
        key if key.is_resolved() => true,
        key => concerned(key),
    });
    // Members are updated before their group.
    let mut next_hops: Vec<(bool, NextHopId)> = concerned
        .map(|(id, next_hop)| (next_hop.is_group(), id))
        .collect();
    next_hops.sort_unstable();
    for (_, next_hop) in next_hops {
        table.next_hops.refresh(next_hop, state, out);
    }
}

fn key(route: &TableRoute<'_>) -> Key {
    // The kernel removes a deleted address from IPv6 routes and keeps the routes.
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
            // The order of hops that were added one by one varies.
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

/// A hash of the type of service and source prefix that a route is limited to; 0 if it is for all packets.
fn variant(route: &TableRoute<'_>) -> u32 {
    if route.tos == 0 && route.sources.is_none() {
        return 0;
    }
    let hash = FixedState::with_seed(0).hash_one((route.tos, route.sources));
    u32::try_from(hash >> 32).unwrap_or(u32::MAX).max(1)
}
