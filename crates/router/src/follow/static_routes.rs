//! Static routes, which replace the kernel's routes of the main table. Their gateways are resolved by the
//! kernel's devices and connected networks.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use lpm::Prefix;
use netdev::Link;
use netdev::monitor::{Hop, Kind, TableRoute};

use super::address_family::AddressFamily;
use super::kernel_state::Resolution;
use crate::forward::Family;
use crate::image::ImageRoutes;
use crate::routes::{self, Target};

/// Prefix length (longest first), network, metric, device.
type Network = (Reverse<u8>, IpAddr, u32, u32);

#[derive(Debug, Default)]
pub(super) struct StaticRoutes {
    hops4: Vec<Target>,
    hops6: Vec<Target>,
    networks: BTreeSet<Network>,
    /// The networks that the running dump has delivered.
    dumped: Option<BTreeSet<Network>>,
    changed: bool,
}

impl StaticRoutes {
    pub(super) fn new(routes: &ImageRoutes) -> Self {
        Self {
            hops4: routes.hops4.clone(),
            hops6: routes.hops6.clone(),
            ..Self::default()
        }
    }

    /// Records a connected network of the main table. Returns whether the route is one: static routes reach
    /// their gateways by these.
    pub(super) fn accept(&mut self, route: &TableRoute<'_>, gone: bool) -> bool {
        let plain = route.kind == Kind::Unicast
            && route.object.is_none()
            && !route.encapsulated
            && route.tos == 0
            && route.sources.is_none();
        let [hop] = route.hops else {
            return false;
        };
        if !plain || hop.gateway.is_some() {
            return false;
        }
        let network = (
            Reverse(route.prefix_len),
            route.destination,
            route.metric,
            hop.ifindex,
        );
        let dumped = self.dumped.iter_mut();
        for networks in dumped.chain([&mut self.networks]) {
            self.changed |= if gone {
                networks.remove(&network)
            } else {
                networks.insert(network)
            };
        }
        true
    }

    pub(super) fn begin_listing(&mut self) {
        self.dumped = Some(BTreeSet::new());
    }

    pub(super) fn end_listing(&mut self) {
        if let Some(dumped) = self.dumped.take() {
            self.changed |= dumped != self.networks;
            self.networks = dumped;
        }
    }

    /// Whether connected networks have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn target(&self, family: Family, number: u16) -> Option<&Target> {
        let hops = match family {
            Family::V4 => &self.hops4,
            Family::V6 => &self.hops6,
        };
        hops.get(usize::from(number).checked_sub(1)?)
    }

    pub(super) fn resolve<'a>(
        &self,
        family: Family,
        number: u16,
        links: &(impl Iterator<Item = &'a Link> + Clone),
    ) -> Resolution {
        match self.target(family, number) {
            Some(Target::Hops(hops)) => {
                let hops = hops.iter();
                Resolution::Hops(
                    hops.filter_map(|hop| self.hop(hop, links.clone()))
                        .collect(),
                )
            }
            Some(Target::Blackhole) => Resolution::Blackhole,
            Some(Target::Unreachable | Target::Prohibit) => Resolution::Refused,
            Some(Target::Kernel | Target::Origin(_) | Target::Unspecified | Target::StandIn(_)) => {
                Resolution::Kernel
            }
            None => Resolution::Unknown,
        }
    }

    /// None if the device does not exist, or no connected network contains the gateway.
    fn hop<'a>(&self, hop: &routes::Hop, mut links: impl Iterator<Item = &'a Link>) -> Option<Hop> {
        let ifindex = match (&hop.interface, hop.gateway) {
            (Some(name), _) => links.find(|link| *link.name == **name)?.index,
            (None, Some(gateway)) => self.network_of(gateway)?,
            (None, None) => return None,
        };
        Some(Hop {
            gateway: hop.gateway,
            ifindex,
            weight: hop.weight,
        })
    }

    /// The device of the longest connected network that contains an address.
    fn network_of(&self, address: IpAddr) -> Option<u32> {
        let holds = |network: &&Network| match address {
            IpAddr::V4(of) => within(network, of.to_bits()),
            IpAddr::V6(of) => within(network, of.to_bits()),
        };
        self.networks.iter().find(holds).map(|network| network.3)
    }
}

fn within<A: AddressFamily>((length, network, ..): &Network, address: A) -> bool {
    A::of(*network)
        .and_then(|network| Prefix::containing(network, length.0).ok())
        .is_some_and(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_on_the_longest_network() {
        let mut static_routes = StaticRoutes::default();
        let route =
            |network: &str, prefix_len, hop: &Hop, gone, static_routes: &mut StaticRoutes| {
                let route = TableRoute {
                    destination: network.parse().unwrap(),
                    prefix_len,
                    table: 254,
                    kind: Kind::Unicast,
                    tos: 0,
                    sources: None,
                    metric: 0,
                    hops: &[*hop],
                    object: None,
                    source: None,
                    mtu: None,
                    encapsulated: false,
                    position: netdev::monitor::Position::Last,
                };
                static_routes.accept(&route, gone)
            };
        let by = |ifindex, gateway: Option<&str>| Hop {
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            ifindex,
            weight: 1,
        };
        assert!(route(
            "10.0.0.0",
            8,
            &by(2, None),
            false,
            &mut static_routes
        ));
        assert!(route(
            "10.1.0.0",
            16,
            &by(3, None),
            false,
            &mut static_routes
        ));
        assert!(!route(
            "10.1.1.0",
            24,
            &by(4, Some("10.0.0.9")),
            false,
            &mut static_routes
        ));
        assert!(route(
            "2001:db8::",
            32,
            &by(5, None),
            false,
            &mut static_routes
        ));
        let of = |static_routes: &StaticRoutes, address: &str| {
            static_routes.network_of(address.parse().unwrap())
        };
        assert_eq!(of(&static_routes, "10.1.1.1"), Some(3));
        assert_eq!(of(&static_routes, "10.2.1.1"), Some(2));
        assert_eq!(of(&static_routes, "2001:db8::1"), Some(5));
        assert_eq!(of(&static_routes, "192.0.2.1"), None);
        assert!(static_routes.take_changed() && !static_routes.take_changed());
        assert!(route(
            "10.1.0.0",
            16,
            &by(3, None),
            true,
            &mut static_routes
        ));
        assert_eq!(of(&static_routes, "10.1.1.1"), Some(2));
        // After a dump, networks that it did not deliver are removed.
        static_routes.begin_listing();
        route("10.3.0.0", 16, &by(7, None), false, &mut static_routes);
        static_routes.end_listing();
        assert!(static_routes.take_changed());
        assert_eq!(
            (
                of(&static_routes, "10.3.1.1"),
                of(&static_routes, "10.1.1.1")
            ),
            (Some(7), None)
        );
    }
}
