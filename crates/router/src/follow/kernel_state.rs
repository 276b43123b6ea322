//! Devices, neighbours and next-hop objects of the kernel, and the state of a hop that follows from them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use foldhash::{HashMap, HashSet};
use netdev::monitor::{Hop, ObjectMeaning, TableRoute};
use netdev::{Link, Neighbour, NeighbourState};

use super::static_routes::StaticRoutes;
use crate::forward::{Adjacency, Family};
use crate::image::ImageRoutes;
use crate::routes::Target;

/// The kernel's state as last reported.
#[derive(Debug, Default)]
pub(super) struct KernelState {
    links: HashMap<u32, Link>,
    neighbours: HashMap<(u32, IpAddr), NeighbourEntry>,
    objects: HashMap<u32, Object>,
    /// IPv4 addresses of devices. The kernel routes no IPv4 packet by a device without one.
    addresses: BTreeSet<(u32, Ipv4Addr)>,
    /// Devices that the data plane has refused to send by.
    refused: HashSet<u32>,
    /// Routes that replace the kernel's.
    static_routes: Option<StaticRoutes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NeighbourEntry {
    mac: Option<[u8; 6]>,
    state: NeighbourState,
}

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Hop(Hop),
    Blackhole,
    Group(Vec<(u32, u16)>),
    Kernel,
}

/// The result of resolving a next-hop object or a static next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    Hops(Vec<Hop>),
    Blackhole,
    Refused,
    Kernel,
    /// Not known, or not known yet.
    Unknown,
}

/// Whether packets can be sent by a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HopState {
    Ready(Adjacency),
    /// The link-layer address is unknown, or the device has no carrier.
    Unresolved,
    /// Only the kernel can send by this device.
    Device,
    /// The device is down or no longer exists: the kernel removes its routes.
    Down,
}

impl KernelState {
    pub(super) fn with(routes: &ImageRoutes) -> Self {
        Self {
            static_routes: Some(StaticRoutes::new(routes)),
            ..Self::default()
        }
    }

    /// Whether static routes replace the kernel's.
    pub(super) fn has_static_routes(&self) -> bool {
        self.static_routes.is_some()
    }

    /// Whether a route of the main table is used. Static routes exclude all but connected ones.
    pub(super) fn accepts(&mut self, route: &TableRoute<'_>, gone: bool) -> bool {
        let static_routes = self.static_routes.as_mut();
        static_routes.is_none_or(|static_routes| static_routes.accept(route, gone))
    }

    pub(super) fn begin_listing(&mut self) {
        self.static_routes
            .iter_mut()
            .for_each(StaticRoutes::begin_listing);
    }

    pub(super) fn end_listing(&mut self) {
        self.static_routes
            .iter_mut()
            .for_each(StaticRoutes::end_listing);
    }

    /// Whether gateways of static routes may be reached by other devices than at the last call.
    pub(super) fn gateways_moved(&mut self) -> bool {
        self.static_routes
            .as_mut()
            .is_some_and(StaticRoutes::take_changed)
    }

    pub(super) fn resolve_static(&self, family: Family, number: u16) -> Resolution {
        let static_routes = self.static_routes.as_ref();
        static_routes.map_or(Resolution::Unknown, |static_routes| {
            static_routes.resolve(family, number, &self.links.values())
        })
    }

    pub(super) fn target(&self, family: Family, number: u16) -> Option<&Target> {
        self.static_routes.as_ref()?.target(family, number)
    }

    /// Returns whether anything changed.
    pub(super) fn set_link(&mut self, link: &Link) -> bool {
        self.refused.remove(&link.index);
        let before = self.links.insert(link.index, link.clone());
        before.is_none_or(|before| !same_for_packets(&before, link))
    }

    pub(super) fn remove_link(&mut self, ifindex: u32) -> bool {
        self.neighbours.retain(|(at, _), _| *at != ifindex);
        self.links.remove(&ifindex).is_some()
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    pub(super) fn name(&self, ifindex: u32) -> String {
        let link = self.links.get(&ifindex);
        link.map_or_else(|| ifindex.to_string(), |link| link.name.clone())
    }

    /// Notes that the data plane refuses a device. Returns whether that is new.
    pub(super) fn refuse(&mut self, ifindex: u32) -> bool {
        self.refused.insert(ifindex)
    }

    /// Returns whether anything changed.
    pub(super) fn set_neighbour(&mut self, neighbour: &Neighbour) -> bool {
        let known = NeighbourEntry {
            mac: neighbour.mac.filter(|_| neighbour.usable()),
            state: neighbour.state,
        };
        let key = (neighbour.ifindex, neighbour.address);
        self.neighbours.insert(key, known) != Some(known)
    }

    pub(super) fn remove_neighbour(&mut self, ifindex: u32, address: IpAddr) -> bool {
        self.neighbours.remove(&(ifindex, address)).is_some()
    }

    pub(super) fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.neighbours.keys().copied()
    }

    pub(super) fn is_usable(&self, ifindex: u32, address: IpAddr) -> bool {
        let known = self.neighbours.get(&(ifindex, address));
        known.is_some_and(|known| known.mac.is_some())
    }

    /// Whether resolution of a neighbour is still in progress.
    pub(super) fn is_resolving(&self, ifindex: u32, address: IpAddr) -> bool {
        let known = self.neighbours.get(&(ifindex, address));
        let failed = known.is_some_and(|known| known.state == NeighbourState::Failed);
        !failed && !self.is_usable(ifindex, address) && self.should_probe(ifindex, address)
    }

    /// Whether the kernel should resolve a neighbour, or confirm a stale one.
    pub(super) fn should_probe(&self, ifindex: u32, address: IpAddr) -> bool {
        let can = self.links.get(&ifindex);
        let can = can.is_some_and(|link| link.carrier && link.ethernet && !link.noarp);
        let known = self.neighbours.get(&(ifindex, address));
        can && known.is_none_or(|known| known.mac.is_none() || known.state == NeighbourState::Stale)
    }

    pub(super) fn set_address(&mut self, ifindex: u32, address: Ipv4Addr) {
        self.addresses.insert((ifindex, address));
    }

    /// Returns whether it was the device's last address.
    pub(super) fn remove_address(&mut self, ifindex: u32, address: Ipv4Addr) -> bool {
        let known = self.addresses.remove(&(ifindex, address));
        let of_it = (ifindex, Ipv4Addr::UNSPECIFIED)..=(ifindex, Ipv4Addr::BROADCAST);
        known && self.addresses.range(of_it).next().is_none()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = (u32, Ipv4Addr)> {
        self.addresses.iter().copied()
    }

    /// Returns whether anything changed.
    pub(super) fn set_object(&mut self, id: u32, meaning: ObjectMeaning<'_>) -> bool {
        let object = match meaning {
            ObjectMeaning::Hop(hop) => Object::Hop(hop),
            ObjectMeaning::Blackhole => Object::Blackhole,
            ObjectMeaning::Group(members) => Object::Group(members.to_vec()),
            ObjectMeaning::Kernel => Object::Kernel,
        };
        self.objects.insert(id, object.clone()) != Some(object)
    }

    /// Removes objects, also from groups. An empty group is removed as well. Returns the ids of all that were
    /// removed.
    pub(super) fn remove_objects(&mut self, gone: &dyn Fn(u32, &Object) -> bool) -> Vec<u32> {
        let found = self
            .objects
            .iter()
            .filter(|(id, object)| gone(**id, object));
        let mut gone: Vec<u32> = found.map(|(id, _)| *id).collect();
        self.objects.retain(|id, _| !gone.contains(id));
        let mut empty = Vec::new();
        for (id, object) in &mut self.objects {
            if let Object::Group(members) = object {
                members.retain(|(member, _)| !gone.contains(member));
                if members.is_empty() {
                    empty.push(*id);
                }
            }
        }
        self.objects.retain(|id, _| !empty.contains(id));
        gone.extend(empty);
        gone
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = u32> {
        self.objects.keys().copied()
    }

    pub(super) fn resolve(&self, id: u32) -> Resolution {
        match self.objects.get(&id) {
            None => Resolution::Unknown,
            Some(Object::Hop(hop)) => Resolution::Hops(vec![*hop]),
            Some(Object::Blackhole) => Resolution::Blackhole,
            Some(Object::Kernel) => Resolution::Kernel,
            Some(Object::Group(members)) => {
                let mut hops = Vec::with_capacity(members.len());
                for (member, weight) in members {
                    match self.objects.get(member) {
                        Some(Object::Hop(hop)) => hops.push(Hop {
                            weight: *weight,
                            ..*hop
                        }),
                        // The kernel allows a blackhole only as a group's single member.
                        Some(Object::Blackhole) => return Resolution::Blackhole,
                        Some(Object::Kernel) => return Resolution::Kernel,
                        Some(Object::Group(_)) | None => {}
                    }
                }
                Resolution::Hops(hops)
            }
        }
    }

    pub(super) fn is_up(&self, ifindex: u32) -> bool {
        self.links.get(&ifindex).is_some_and(|link| link.up)
    }

    pub(super) fn hop_state(&self, hop: &Hop, mtu: Option<u32>) -> HopState {
        let Some(link) = self.links.get(&hop.ifindex).filter(|link| link.up) else {
            return HopState::Down;
        };
        let Some((leaves_by, vlan)) = self.wire(link) else {
            return HopState::Device;
        };
        if self.refused.contains(&leaves_by) {
            return HopState::Device;
        }
        let known = hop
            .gateway
            .and_then(|gateway| self.neighbours.get(&(hop.ifindex, gateway)));
        match known.and_then(|known| known.mac) {
            Some(destination) if link.carrier => HopState::Ready(Adjacency {
                ifindex: leaves_by,
                source: link.mac,
                destination,
                vlan,
                mtu: mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
            }),
            _ => HopState::Unresolved,
        }
    }

    /// The device by which a plane sends, and the VLAN id that its frames get. None if the plane cannot send
    /// by `link`.
    fn wire(&self, link: &Link) -> Option<(u32, Option<u16>)> {
        let plain = |link: &Link| {
            let kind = link.kind.as_deref();
            link.ethernet && !link.noarp && matches!(kind, None | Some("veth"))
        };
        if link.loopback || link.controller.is_some() {
            return None;
        }
        if plain(link) {
            return Some((link.index, None));
        }
        // A lower device in another namespace cannot be used from here.
        if link.kind.as_deref() != Some("vlan") || link.link_namespace.is_some() {
            return None;
        }
        let below = self.links.get(&link.link?)?;
        let free = plain(below) && below.controller.is_none();
        free.then_some((below.index, Some(link.vlan?)))
    }
}

fn same_for_packets(a: &Link, b: &Link) -> bool {
    let of = |link: &Link| {
        (
            (link.up, link.carrier, link.mac, link.mtu),
            (link.controller, link.link, link.vlan, link.noarp),
            link.name.clone(),
        )
    };
    of(a) == of(b)
}

impl Object {
    pub(super) fn leaves_by(&self, ifindex: u32) -> bool {
        matches!(self, Self::Hop(hop) if hop.ifindex == ifindex)
    }
}
