//! Routes that are given, in place of those that others wrote into the kernel: what their next hops come
//! to by the kernel's devices and by the networks on them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use lpm::Prefix;
use netdev::Link;
use netdev::monitor::{Hop, Kind, TableRoute};

use super::side::Side;
use super::world::Expanded;
use crate::forward::Family;
use crate::image::StoredRoutes;
use crate::routes::{self, Target};

/// The longest network first, then by metric; and the device.
type Network = (Reverse<u8>, IpAddr, u32, u32);

#[derive(Debug, Default)]
pub(super) struct Given {
    hops4: Vec<Target>,
    hops6: Vec<Target>,
    networks: BTreeSet<Network>,
    /// Those of the listing that goes on.
    listed: Option<BTreeSet<Network>>,
    changed: bool,
}

impl Given {
    pub(super) fn new(routes: &StoredRoutes) -> Self {
        Self {
            hops4: routes.hops4.clone(),
            hops6: routes.hops6.clone(),
            ..Self::default()
        }
    }

    /// Whether a route of the table main counts: those of networks on links do, by which gateways are
    /// reached.
    pub(super) fn take(&mut self, route: &TableRoute<'_>, gone: bool) -> bool {
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
        let listed = self.listed.iter_mut();
        for networks in listed.chain([&mut self.networks]) {
            self.changed |= if gone {
                networks.remove(&network)
            } else {
                networks.insert(network)
            };
        }
        true
    }

    pub(super) fn begin_listing(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    pub(super) fn end_listing(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.changed |= listed != self.networks;
            self.networks = listed;
        }
    }

    /// Whether gateways may be elsewhere than when this was last asked.
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn target(&self, family: Family, number: u16) -> Option<&Target> {
        let hops = match family {
            Family::V4 => &self.hops4,
            Family::V6 => &self.hops6,
        };
        hops.get(usize::from(number).checked_sub(1)?)
    }

    pub(super) fn expand<'a>(
        &self,
        family: Family,
        number: u16,
        links: &(impl Iterator<Item = &'a Link> + Clone),
    ) -> Expanded {
        match self.target(family, number) {
            Some(Target::Hops(hops)) => {
                let hops = hops.iter();
                Expanded::Hops(
                    hops.filter_map(|hop| self.hop(hop, links.clone()))
                        .collect(),
                )
            }
            Some(Target::Blackhole) => Expanded::Blackhole,
            Some(Target::Unreachable | Target::Prohibit) => Expanded::Refused,
            Some(Target::Kernel | Target::Origin(_) | Target::Unspecified | Target::StandIn(_)) => {
                Expanded::Kernel
            }
            None => Expanded::Nothing,
        }
    }

    /// None while there is no such device, or none that the gateway is on.
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

    /// The device of the longest network that an address is in.
    fn network_of(&self, address: IpAddr) -> Option<u32> {
        let holds = |network: &&Network| match address {
            IpAddr::V4(of) => within(network, of.to_bits()),
            IpAddr::V6(of) => within(network, of.to_bits()),
        };
        self.networks.iter().find(holds).map(|network| network.3)
    }
}

fn within<A: Side>((length, network, ..): &Network, address: A) -> bool {
    A::of(*network)
        .and_then(|network| Prefix::containing(network, length.0).ok())
        .is_some_and(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_on_the_longest_network() {
        let mut given = Given::default();
        let route = |network: &str, prefix_len, hop: &Hop, gone, given: &mut Given| {
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
            given.take(&route, gone)
        };
        let by = |ifindex, gateway: Option<&str>| Hop {
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            ifindex,
            weight: 1,
        };
        assert!(route("10.0.0.0", 8, &by(2, None), false, &mut given));
        assert!(route("10.1.0.0", 16, &by(3, None), false, &mut given));
        assert!(!route(
            "10.1.1.0",
            24,
            &by(4, Some("10.0.0.9")),
            false,
            &mut given
        ));
        assert!(route("2001:db8::", 32, &by(5, None), false, &mut given));
        let of = |given: &Given, address: &str| given.network_of(address.parse().unwrap());
        assert_eq!(of(&given, "10.1.1.1"), Some(3));
        assert_eq!(of(&given, "10.2.1.1"), Some(2));
        assert_eq!(of(&given, "2001:db8::1"), Some(5));
        assert_eq!(of(&given, "192.0.2.1"), None);
        assert!(given.has_changed() && !given.has_changed());
        assert!(route("10.1.0.0", 16, &by(3, None), true, &mut given));
        assert_eq!(of(&given, "10.1.1.1"), Some(2));
        // What a listing does not have is gone, and what changes meanwhile counts.
        given.begin_listing();
        route("10.3.0.0", 16, &by(7, None), false, &mut given);
        given.end_listing();
        assert!(given.has_changed());
        assert_eq!(
            (of(&given, "10.3.1.1"), of(&given, "10.1.1.1")),
            (Some(7), None)
        );
    }
}
