//! The data plane as it is told: every call counted, and what it refuses made safe.

use lpm::{NextHop, Prefix, Prefix4, Prefix6, Rib};

use super::side::Side;
use super::world::World;
use crate::forward::{Compiler, Family, Forwarding, Plane, Punt, Rest, nothing};

/// A plane, and what it was told.
#[derive(Debug)]
pub(super) struct Outlet<P> {
    pub(super) plane: P,
    pub(super) told: Told,
}

/// Calls since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) routes: u64,
    pub(super) next_hops: u64,
    pub(super) refusals: u64,
}

/// Stands for the plane until the first listing is complete: a plane that is made with all its
/// routes can know how large it will be.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) v4: Rib<u32>,
    pub(super) v6: Rib<u128>,
}

impl Plane for Gathered {
    type Error = std::convert::Infallible;
    type Compiled = ();

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Self::Error> {
        match hop {
            Some(hop) => self.v4.insert(prefix, hop),
            None => self.v4.remove(prefix),
        };
        Ok(())
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Self::Error> {
        match hop {
            Some(hop) => self.v6.insert(prefix, hop),
            None => self.v6.remove(prefix),
        };
        Ok(())
    }

    fn next_hop(&mut self, _: Family, _: NextHop, _: &Forwarding) -> Result<(), Self::Error> {
        Ok(())
    }

    fn compiler(&self) -> Compiler<(), Self::Error> {
        Box::new(|_| Ok(()))
    }

    fn enforce(&mut self, (): ()) -> Result<Rest, Self::Error> {
        Ok(nothing())
    }
}

impl<P: Plane> Outlet<P> {
    pub(super) fn new(plane: P) -> Self {
        Self {
            plane,
            told: Told::default(),
        }
    }

    /// Whether it could be done.
    pub(super) fn route<A: Side>(&mut self, prefix: Prefix<A>, hop: Option<NextHop>) -> bool {
        self.told.routes += 1;
        let done = A::route(&mut self.plane, prefix, hop);
        if let Err(error) = &done {
            if self.told.refusals == 0 {
                tracing::error!(
                    "route {prefix}: {error}; its packets are left to the kernel, and it is tried again every second"
                );
            }
            self.told.refusals += 1;
        }
        done.is_ok()
    }

    /// Leaves a family to the kernel, or no longer; whether that could be done.
    pub(super) fn withhold(&mut self, family: Family, on: bool) -> bool {
        let done = self.plane.withhold(family, on);
        match &done {
            Ok(()) if on => tracing::error!(
                "all {family:?} packets are left to the kernel: there is no room for a route, and others would answer for it"
            ),
            Ok(()) => tracing::info!("there is room for all {family:?} routes"),
            Err(error) => tracing::error!("leaving {family:?} packets to the kernel: {error}"),
        }
        done.is_ok()
    }

    pub(super) fn next_hop(&mut self, family: Family, hop: NextHop, to: &Forwarding) -> bool {
        self.told.next_hops += 1;
        let done = self.plane.next_hop(family, hop, to);
        if let Err(error) = &done {
            tracing::debug!("next hop {}: {error}", hop.get());
        }
        done.is_ok()
    }

    /// Gives a number its meaning, or leaves it to the kernel where the plane refuses; returns
    /// what it means then.
    pub(super) fn tell(
        &mut self,
        family: Family,
        hop: NextHop,
        to: Forwarding,
        world: &mut World,
    ) -> Forwarding {
        if self.next_hop(family, hop, &to) {
            return to;
        }
        self.told.refusals += 1;
        if let Forwarding::Neighbour(adjacency) = to
            && world.refuse(adjacency.ifindex)
        {
            let name = world.name(adjacency.ifindex);
            tracing::warn!(
                "the data plane cannot send by {name}: packets that leave by it are the kernel's"
            );
        }
        let kernel = Forwarding::Punt(Punt::Device);
        self.next_hop(family, hop, &kernel);
        kernel
    }
}
