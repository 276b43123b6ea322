//! The routes of one prefix in the kernel's order, the first of which is its choice.

use netdev::monitor::Position;

use super::way::{Key, WayId, Ways};

#[derive(Debug)]
pub(super) enum Routes {
    None,
    One(Route),
    /// In the kernel's order: the first is its choice.
    Several(Vec<Route>),
}

/// A route as one of a prefix's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) way: WayId,
    pub(super) metric: u32,
    /// Of a route for some sources or one type of service: which; else 0.
    pub(super) variant: u32,
    pub(super) rank: Rank,
    /// The listing it was last in.
    pub(super) seen: u8,
}

/// Which table's routes count before which, of one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Local,
    /// Given, in place of the kernel's.
    Given,
    Main,
    /// Ours, where the kernel has no route.
    Kept,
}

impl Route {
    pub(super) fn new(rank: Rank, metric: u32, variant: u32, way: WayId) -> Self {
        Self {
            way,
            metric,
            variant,
            rank,
            seen: 0,
        }
    }

    fn place(&self) -> (Rank, u32) {
        (self.rank, self.metric)
    }

    /// Whether one would take the other's place.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.place() == other.place() && self.variant == other.variant
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

    /// Returns the route whose place it took.
    pub(super) fn insert(
        &mut self,
        route: Route,
        position: Position,
        ways: &Ways,
        v6: bool,
    ) -> Option<Route> {
        let known = self.as_slice();
        let replaced = known.iter().position(|known| {
            known.is_like(&route)
                && (known.way == route.way || v6 && grown(ways.key(known.way), ways.key(route.way)))
        });
        let replaced = replaced.or_else(|| {
            let like = |known: &Route| known.is_like(&route);
            let shares = |known: &Route| {
                !v6 || ways.key(known.way).has_gateways() == ways.key(route.way).has_gateways()
            };
            let first = known.iter().position(|known| like(known) && shares(known));
            let first = first.or_else(|| known.iter().position(like));
            first.filter(|_| position == Position::Replacing)
        });
        if let Some(at) = replaced {
            return Some(std::mem::replace(self.get_mut(at), route));
        }
        let at = match position {
            Position::First => known.partition_point(|known| known.place() < route.place()),
            Position::Last | Position::Replacing => {
                known.partition_point(|known| known.place() <= route.place())
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

/// Whether an IPv6 route has got more hops: the kernel tells all of them each time.
fn grown(known: &Key, new: &Key) -> bool {
    match (known, new) {
        (Key::Hops { hops: few, .. }, Key::Hops { hops: more, .. }) => {
            known.has_gateways() && new.has_gateways() && few.iter().all(|hop| more.contains(hop))
        }
        _ => false,
    }
}
