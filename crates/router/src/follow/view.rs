//! Routes and next hops in a form for output.

use netdev::monitor::Hop;
use serde::Serialize;

use super::address_family::AddressFamily;
use super::kernel_state::{KernelState, Resolution};
use super::next_hop_table::{Key, NextHopEntry};
use super::table::Table;
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
pub(super) fn ports(state: &KernelState, names: &[String]) -> Vec<NamedPort> {
    let links = state.links();
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

pub(super) fn routes<A: AddressFamily>(
    table: &Table<A>,
    state: &KernelState,
    of: Option<A>,
    limit: usize,
) -> Vec<RouteView> {
    let mut found: Vec<_> = match of {
        Some(address) => table.installed_prefix(address).into_iter().collect(),
        None => table.installed().collect(),
    };
    found.sort_unstable_by_key(|(prefix, _)| *prefix);
    found.truncate(limit);
    let view = |(prefix, next_hop): (lpm::Prefix<A>, _)| {
        let next_hop = table.next_hops.get(next_hop);
        RouteView {
            prefix: prefix.to_string(),
            next_hop: next_hop.number.map_or(0, lpm::NextHop::get),
            to: to(&next_hop.key, state),
        }
    };
    found.into_iter().map(view).collect()
}

pub(super) fn next_hops<A: AddressFamily>(
    table: &Table<A>,
    state: &KernelState,
) -> Vec<NextHopView> {
    let numbered = table.next_hops.numbered();
    let view = |next_hop: &NextHopEntry| NextHopView {
        family: match A::FAMILY {
            Family::V4 => 4,
            Family::V6 => 6,
        },
        number: next_hop.number.map_or(0, lpm::NextHop::get),
        uses: next_hop.uses,
        to: to(&next_hop.key, state),
        means: next_hop
            .installed
            .as_ref()
            .map_or_else(String::new, |installed| forwarding_text(installed, state)),
    };
    numbered.map(|(_, next_hop)| view(next_hop)).collect()
}

fn to(key: &Key, state: &KernelState) -> String {
    match key {
        Key::Local => "this machine".into(),
        Key::Refused => "unreachable".into(),
        Key::Drop => "blackhole".into(),
        Key::Kernel => "the kernel".into(),
        Key::Object { id, .. } => match state.resolve(*id) {
            Resolution::Hops(hops) => format!("nhid {id} {}", hops_text(&hops, state)),
            Resolution::Blackhole => format!("nhid {id} blackhole"),
            Resolution::Refused | Resolution::Kernel | Resolution::Unknown => format!("nhid {id}"),
        },
        Key::Static { family, number } => match state.resolve_static(*family, *number) {
            Resolution::Hops(hops) if !hops.is_empty() => hops_text(&hops, state),
            _ => state
                .target(*family, *number)
                .map_or_else(String::new, ToString::to_string),
        },
        Key::Hops { hops, .. } => hops_text(hops, state),
    }
}

fn hops_text(hops: &[Hop], state: &KernelState) -> String {
    let hops = hops.iter().map(|hop| hop_text(hop, state));
    hops.collect::<Vec<_>>().join(", ")
}

fn hop_text(hop: &Hop, state: &KernelState) -> String {
    let device = state.name(hop.ifindex);
    let weight = match hop.weight {
        1 => String::new(),
        weight => format!(" weight {weight}"),
    };
    match hop.gateway {
        Some(gateway) => format!("via {gateway} dev {device}{weight}"),
        None => format!("dev {device}{weight}"),
    }
}

fn forwarding_text(installed: &Forwarding, state: &KernelState) -> String {
    match installed {
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
            let device = state.name(*ifindex);
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
