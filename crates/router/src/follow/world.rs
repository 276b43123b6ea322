//! What routes rest on: devices, neighbours and next-hop objects, and what a hop comes to by them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use foldhash::{HashMap, HashSet};
use netdev::monitor::{Hop, ObjectMeaning, TableRoute};
use netdev::{Link, Neighbour, NeighbourState};

use super::given::Given;
use crate::forward::{Adjacency, Family};
use crate::image::StoredRoutes;
use crate::routes::Target;

/// Facts of the kernel, as last heard.
#[derive(Debug, Default)]
pub(super) struct World {
    links: HashMap<u32, Link>,
    neighbours: HashMap<(u32, IpAddr), Known>,
    objects: HashMap<u32, Object>,
    /// IPv4 addresses of devices: without any, the kernel routes nothing by one.
    addresses: BTreeSet<(u32, Ipv4Addr)>,
    /// Devices that the data plane said it cannot send by.
    refused: HashSet<u32>,
    /// Routes in place of the kernel's.
    given: Option<Given>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
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

/// What an object comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expanded {
    Hops(Vec<Hop>),
    Blackhole,
    Refused,
    Kernel,
    /// It is not known (yet).
    Nothing,
}

/// What becomes of packets that take a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    Ready(Adjacency),
    /// Nobody's link-layer address is known, or the device has no carrier.
    Unresolved,
    /// Only the kernel can send by the device.
    Device,
    /// The device is down or gone: the kernel takes its routes away.
    Dead,
}

impl World {
    pub(super) fn with(routes: &StoredRoutes) -> Self {
        Self {
            given: Some(Given::new(routes)),
            ..Self::default()
        }
    }

    /// Whether routes are given.
    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Whether a route of the table main counts.
    pub(super) fn takes(&mut self, route: &TableRoute<'_>, gone: bool) -> bool {
        let given = self.given.as_mut();
        given.is_none_or(|given| given.take(route, gone))
    }

    pub(super) fn begin_listing(&mut self) {
        self.given.iter_mut().for_each(Given::begin_listing);
    }

    pub(super) fn end_listing(&mut self) {
        self.given.iter_mut().for_each(Given::end_listing);
    }

    /// Whether gateways of given routes may be elsewhere than when this was last asked.
    pub(super) fn gateways_moved(&mut self) -> bool {
        self.given.as_mut().is_some_and(Given::has_changed)
    }

    pub(super) fn expand_given(&self, family: Family, number: u16) -> Expanded {
        let given = self.given.as_ref();
        given.map_or(Expanded::Nothing, |given| {
            given.expand(family, number, &self.links.values())
        })
    }

    pub(super) fn target(&self, family: Family, number: u16) -> Option<&Target> {
        self.given.as_ref()?.target(family, number)
    }

    /// Whether anything is different now.
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

    /// Whether the data plane refuses a device for the first time.
    pub(super) fn refuse(&mut self, ifindex: u32) -> bool {
        self.refused.insert(ifindex)
    }

    /// Whether anything is different now.
    pub(super) fn set_neighbour(&mut self, neighbour: &Neighbour) -> bool {
        let known = Known {
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

    /// Whether a neighbour may still answer the kernel's question.
    pub(super) fn is_awaited(&self, ifindex: u32, address: IpAddr) -> bool {
        let known = self.neighbours.get(&(ifindex, address));
        let failed = known.is_some_and(|known| known.state == NeighbourState::Failed);
        !failed && !self.is_usable(ifindex, address) && self.should_probe(ifindex, address)
    }

    /// Whether the kernel should ask for a neighbour, or ask whether it is still there.
    pub(super) fn should_probe(&self, ifindex: u32, address: IpAddr) -> bool {
        let can = self.links.get(&ifindex);
        let can = can.is_some_and(|link| link.carrier && link.ethernet && !link.noarp);
        let known = self.neighbours.get(&(ifindex, address));
        can && known.is_none_or(|known| known.mac.is_none() || known.state == NeighbourState::Stale)
    }

    pub(super) fn set_address(&mut self, ifindex: u32, address: Ipv4Addr) {
        self.addresses.insert((ifindex, address));
    }

    /// Whether it was the device's last.
    pub(super) fn remove_address(&mut self, ifindex: u32, address: Ipv4Addr) -> bool {
        let known = self.addresses.remove(&(ifindex, address));
        let of_it = (ifindex, Ipv4Addr::UNSPECIFIED)..=(ifindex, Ipv4Addr::BROADCAST);
        known && self.addresses.range(of_it).next().is_none()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = (u32, Ipv4Addr)> {
        self.addresses.iter().copied()
    }

    /// Whether anything is different now.
    pub(super) fn set_object(&mut self, id: u32, meaning: ObjectMeaning<'_>) -> bool {
        let object = match meaning {
            ObjectMeaning::Hop(hop) => Object::Hop(hop),
            ObjectMeaning::Blackhole => Object::Blackhole,
            ObjectMeaning::Group(members) => Object::Group(members.to_vec()),
            ObjectMeaning::Kernel => Object::Kernel,
        };
        self.objects.insert(id, object.clone()) != Some(object)
    }

    /// Takes an object away, also out of groups; an empty group goes with it. Returns those gone.
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

    pub(super) fn expand(&self, id: u32) -> Expanded {
        match self.objects.get(&id) {
            None => Expanded::Nothing,
            Some(Object::Hop(hop)) => Expanded::Hops(vec![*hop]),
            Some(Object::Blackhole) => Expanded::Blackhole,
            Some(Object::Kernel) => Expanded::Kernel,
            Some(Object::Group(members)) => {
                let mut hops = Vec::with_capacity(members.len());
                for (member, weight) in members {
                    match self.objects.get(member) {
                        Some(Object::Hop(hop)) => hops.push(Hop {
                            weight: *weight,
                            ..*hop
                        }),
                        // A group of one blackhole is all the kernel allows.
                        Some(Object::Blackhole) => return Expanded::Blackhole,
                        Some(Object::Kernel) => return Expanded::Kernel,
                        Some(Object::Group(_)) | None => {}
                    }
                }
                Expanded::Hops(hops)
            }
        }
    }

    pub(super) fn is_up(&self, ifindex: u32) -> bool {
        self.links.get(&ifindex).is_some_and(|link| link.up)
    }

    pub(super) fn outlook(&self, hop: &Hop, mtu: Option<u32>) -> Outlook {
        let Some(link) = self.links.get(&hop.ifindex).filter(|link| link.up) else {
            return Outlook::Dead;
        };
        let Some((leaves_by, vlan)) = self.wire(link) else {
            return Outlook::Device;
        };
        if self.refused.contains(&leaves_by) {
            return Outlook::Device;
        }
        let known = hop
            .gateway
            .and_then(|gateway| self.neighbours.get(&(hop.ifindex, gateway)));
        match known.and_then(|known| known.mac) {
            Some(destination) if link.carrier => Outlook::Ready(Adjacency {
                ifindex: leaves_by,
                source: link.mac,
                destination,
                vlan,
                mtu: mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
            }),
            _ => Outlook::Unresolved,
        }
    }

    /// The device whose frames are what a packet plane sends, and the VLAN id they get.
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
        // One in another namespace cannot be sent by from here.
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
