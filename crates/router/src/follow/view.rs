//! Routes and next hops as people look at them.

use netdev::monitor::Hop;
use serde::Serialize;

use super::side::Side;
use super::table::Table;
use super::way::{Key, Way};
use super::world::{Expanded, World};
use crate::forward::{Adjacency, Family, Forwarding, Punt};
use crate::xdp::Port;

/// A prefix in the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteView {
    pub prefix: String,
    /// The number of its next hop.
    pub next_hop: u16,
    /// Where the kernel's tables send it.
    pub to: String,
}

/// A numbered next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextHopView {
    /// 4 or 6.
    pub family: u8,
    pub number: u16,
    /// Prefixes and groups that go there.
    pub uses: u32,
    pub to: String,
    /// What the data plane does with a packet.
    pub means: String,
}

/// Where packets of a device come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    pub name: String,
    pub port: Port,
}

/// The ports of the devices with these names that are there.
pub(super) fn ports(world: &World, names: &[String]) -> Vec<NamedPort> {
    let links = world.links();
    let named = links.filter(|link| names.contains(&link.name));
    let ports = named.map(|link| NamedPort {
        name: link.name.clone(),
        port: match (link.vlan, link.link) {
            (Some(vlan), Some(below)) => Port {
                ifindex: below,
                tags: [vlan, 0],
                mac: link.mac,
            },
            _ => Port {
                ifindex: link.index,
                tags: [0, 0],
                mac: link.mac,
            },
        },
    });
    let mut ports: Vec<NamedPort> = ports.collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    ports
}

pub(super) fn routes<A: Side>(
    table: &Table<A>,
    world: &World,
    of: Option<A>,
    limit: usize,
) -> Vec<RouteView> {
    let mut found: Vec<_> = match of {
        Some(address) => table.installed_prefix(address).into_iter().collect(),
        None => table.installed().collect(),
    };
    found.sort_unstable_by_key(|(prefix, _)| *prefix);
    found.truncate(limit);
    let view = |(prefix, way): (lpm::Prefix<A>, _)| {
        let way = table.ways.get(way);
        RouteView {
            prefix: prefix.to_string(),
            next_hop: way.number.map_or(0, lpm::NextHop::get),
            to: to(&way.key, world),
        }
    };
    found.into_iter().map(view).collect()
}

pub(super) fn next_hops<A: Side>(table: &Table<A>, world: &World) -> Vec<NextHopView> {
    let numbered = table.ways.numbered();
    let view = |way: &Way| NextHopView {
        family: match A::FAMILY {
            Family::V4 => 4,
            Family::V6 => 6,
        },
        number: way.number.map_or(0, lpm::NextHop::get),
        uses: way.uses,
        to: to(&way.key, world),
        means: way
            .told
            .as_ref()
            .map_or_else(String::new, |told| means(told, world)),
    };
    numbered.map(|(_, way)| view(way)).collect()
}

fn to(key: &Key, world: &World) -> String {
    match key {
        Key::Local => "this machine".into(),
        Key::Refused => "unreachable".into(),
        Key::Drop => "blackhole".into(),
        Key::Kernel => "the kernel".into(),
        Key::Object { id, .. } => match world.expand(*id) {
            Expanded::Hops(hops) => format!("nhid {id} {}", hops_text(&hops, world)),
            Expanded::Blackhole => format!("nhid {id} blackhole"),
            Expanded::Refused | Expanded::Kernel | Expanded::Nothing => format!("nhid {id}"),
        },
        Key::Given { family, number } => match world.expand_given(*family, *number) {
            Expanded::Hops(hops) if !hops.is_empty() => hops_text(&hops, world),
            _ => world
                .target(*family, *number)
                .map_or_else(String::new, ToString::to_string),
        },
        Key::Hops { hops, .. } => hops_text(hops, world),
    }
}

fn hops_text(hops: &[Hop], world: &World) -> String {
    let hops = hops.iter().map(|hop| hop_text(hop, world));
    hops.collect::<Vec<_>>().join(", ")
}

fn hop_text(hop: &Hop, world: &World) -> String {
    let device = world.name(hop.ifindex);
    let weight = match hop.weight {
        1 => String::new(),
        weight => format!(" weight {weight}"),
    };
    match hop.gateway {
        Some(gateway) => format!("via {gateway} dev {device}{weight}"),
        None => format!("dev {device}{weight}"),
    }
}

fn means(told: &Forwarding, world: &World) -> String {
    match told {
        Forwarding::Drop => "drop".into(),
        Forwarding::Punt(why) => format!("kernel: {}", reason(*why)),
        Forwarding::Neighbour(Adjacency {
            ifindex,
            destination,
            vlan,
            ..
        }) => {
            let [a, b, c, d, e, f] = destination;
            let vlan = vlan.map_or_else(String::new, |vlan| format!(" vlan {vlan}"));
            let device = world.name(*ifindex);
            format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} dev {device}{vlan}")
        }
        Forwarding::Group(members) => {
            let members = members.iter();
            let members = members.map(|member| format!("{}x{}", member.hop.get(), member.weight));
            format!("group {}", members.collect::<Vec<_>>().join(" "))
        }
    }
}

fn reason(why: Punt) -> &'static str {
    match why {
        Punt::Local => "for this machine",
        Punt::Refused => "refused",
        Punt::Unresolved => "unresolved",
        Punt::Device => "device",
    }
}
