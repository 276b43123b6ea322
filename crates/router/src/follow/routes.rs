//! The routes of one prefix in the kernel's order. The kernel uses the first.

use netdev::monitor::Position;

use super::next_hop_table::{Key, NextHopId, NextHopTable};

#[derive(Debug)]
pub(super) enum Routes {
    None,
    One(Route),
    /// In the kernel's order: it uses the first.
    Several(Vec<Route>),
}

/// One of the routes of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) next_hop: NextHopId,
    pub(super) metric: u32,
    /// Identifies the source prefix and type of service that the route is limited to; 0 if it is not limited.
    pub(super) variant: u32,
    pub(super) rank: Rank,
    /// The generation of the last dump that had it.
    pub(super) seen: u8,
}

/// The precedence of tables: routes of an earlier one are used first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Local,
    /// Static routes, which replace the kernel's.
    Static,
    Main,
    /// Reserved prefixes, which are left to the kernel even if it has no route.
    Reserved,
}

impl Route {
    pub(super) fn new(rank: Rank, metric: u32, variant: u32, next_hop: NextHopId) -> Self {
        Self {
            next_hop,
            metric,
            variant,
            rank,
            seen: 0,
        }
    }

    fn precedence(&self) -> (Rank, u32) {
        (self.rank, self.metric)
    }

    /// Whether one route would replace the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.precedence() == other.precedence() && self.variant == other.variant
    }
}

impl Routes {
    pub(super) fn as_slice(&self) -> &[Route] {
        match self {
            Self::None => &[],
            Self::One(route) => std::slice::from_ref(route),
            Self::Several(routes) => routes,
        }
    }

    /// Returns the route that it replaced.
    pub(super) fn insert(
        &mut self,
        route: Route,
        position: Position,
        next_hops: &NextHopTable,
        v6: bool,
    ) -> Option<Route> {
        let known = self.as_slice();
        let replaced = known.iter().position(|known| {
            known.is_like(&route)
                && (known.next_hop == route.next_hop
                    || v6
                        && has_more_hops(
                            next_hops.key(known.next_hop),
                            next_hops.key(route.next_hop),
                        ))
        });
        let replaced = replaced.or_else(|| {
            let like = |known: &Route| known.is_like(&route);
            let shares = |known: &Route| {
                !v6 || next_hops.key(known.next_hop).has_gateways()
                    == next_hops.key(route.next_hop).has_gateways()
            };
            let first = known.iter().position(|known| like(known) && shares(known));
            let first = first.or_else(|| known.iter().position(like));
            first.filter(|_| position == Position::Replacing)
        });
        if let Some(at) = replaced {
            return Some(std::mem::replace(self.get_mut(at), route));
        }
        let at = match position {
            Position::First => {
                known.partition_point(|known| known.precedence() < route.precedence())
            }
            Position::Last | Position::Replacing => {
                known.partition_point(|known| known.precedence() <= route.precedence())
            }
        };
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(route),
            Self::One(only) if at == 0 => Self::Several(vec![route, only]),
            Self::One(only) => Self::Several(vec![only, route]),
            Self::Several(mut routes) => {
                routes.insert(at, route);
                Self::Several(routes)
            }
        };
        None
    }

    fn get_mut(&mut self, at: usize) -> &mut Route {
        match self {
            Self::None => unreachable!("of an empty list nothing is replaced"),
            Self::One(route) => route,
            Self::Several(routes) => &mut routes[at],
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Route {
        match std::mem::replace(self, Self::None) {
            Self::None => unreachable!("of an empty list nothing is removed"),
            Self::One(route) => route,
            Self::Several(mut routes) => {
                let gone = routes.remove(at);
                *self = match routes.as_slice() {
                    [only] => Self::One(*only),
                    _ => Self::Several(routes),
                };
                gone
            }
        }
    }
}

/// Whether an IPv6 route has gained hops: the kernel then sends all of them again.
fn has_more_hops(known: &Key, new: &Key) -> bool {
    match (known, new) {
        (Key::Hops { hops: few, .. }, Key::Hops { hops: more, .. }) => {
            known.has_gateways() && new.has_gateways() && few.iter().all(|hop| more.contains(hop))
        }
        _ => false,
    }
}
