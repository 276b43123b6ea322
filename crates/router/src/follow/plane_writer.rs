//! Writes to the data plane: counts calls, and makes refusals safe by leaving packets to the kernel.

use lpm::{NextHop, Prefix, Prefix4, Prefix6, Rib};

use super::address_family::AddressFamily;
use super::kernel_state::KernelState;
use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane, Punt, no_cleanup};

/// A plane, and the calls to it.
#[derive(Debug)]
pub(super) struct PlaneWriter<P> {
    pub(super) plane: P,
    pub(super) calls: PlaneCalls,
}

/// Calls and refusals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PlaneCalls {
    pub(super) routes: u64,
    pub(super) next_hops: u64,
    pub(super) refusals: u64,
}

/// Collects routes until the first dump is complete: a plane that is built from all its routes can choose its
/// size.
#[derive(Debug, Default)]
pub(super) struct RibBuilder {
    pub(super) v4: Rib<u32>,
    pub(super) v6: Rib<u128>,
}

impl Plane for RibBuilder {
    type Error = std::convert::Infallible;
    type RuleTables = ();

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

    fn enforce(&mut self, (): ()) -> Result<Cleanup, Self::Error> {
        Ok(no_cleanup())
    }
}

impl<P: Plane> PlaneWriter<P> {
    pub(super) fn new(plane: P) -> Self {
        Self {
            plane,
            calls: PlaneCalls::default(),
        }
    }

    /// Adds, changes or removes a route. Returns whether the plane accepted it.
    pub(super) fn route<A: AddressFamily>(
        &mut self,
        prefix: Prefix<A>,
        hop: Option<NextHop>,
    ) -> bool {
        self.calls.routes += 1;
        let done = A::route(&mut self.plane, prefix, hop);
        if let Err(error) = &done {
            if self.calls.refusals == 0 {
                tracing::error!(
                    "route {prefix}: {error}; its packets are left to the kernel, and it is tried again every second"
                );
            }
            self.calls.refusals += 1;
        }
        done.is_ok()
    }

    /// Leaves a family to the kernel, or takes it back. Returns whether the plane accepted it.
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
        self.calls.next_hops += 1;
        let done = self.plane.next_hop(family, hop, to);
        if let Err(error) = &done {
            tracing::debug!("next hop {}: {error}", hop.get());
        }
        done.is_ok()
    }

    /// Sets the forwarding of a next-hop number, or leaves the number to the kernel if the plane refuses.
    /// Returns the forwarding in effect.
    pub(super) fn set_forwarding(
        &mut self,
        family: Family,
        hop: NextHop,
        to: Forwarding,
        state: &mut KernelState,
    ) -> Forwarding {
        if self.next_hop(family, hop, &to) {
            return to;
        }
        self.calls.refusals += 1;
        if let Forwarding::Neighbour(adjacency) = to
            && state.refuse(adjacency.ifindex)
        {
            let name = state.name(adjacency.ifindex);
            tracing::warn!(
                "the data plane cannot send by {name}: packets that leave by it are the kernel's"
            );
        }
        let kernel = Forwarding::Punt(Punt::Device);
        self.next_hop(family, hop, &kernel);
        kernel
    }
}
