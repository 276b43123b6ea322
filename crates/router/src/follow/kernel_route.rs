//! What a route of the kernel is in a table of prefixes.

use std::hash::BuildHasher;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use lpm::Prefix;
use netdev::monitor::{Hop, Kind, TableRoute};

use super::Origin;
use super::outlet::Outlet;
use super::routes::{Rank, Route};
use super::side::Side;
use super::table::Table;
use super::way::{Key, WayId};
use super::world::World;
use crate::forward::Plane;

/// `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`
pub(super) const MAIN: u32 = 254;
pub(super) const LOCAL: u32 = 255;

/// Takes a route in or out; returns the prefix if that can matter.
pub(super) fn take<A: Side>(
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

/// Tells what these ways mean now, and those by objects and of given routes.
pub(super) fn refresh<A: Side, P: Plane>(
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
