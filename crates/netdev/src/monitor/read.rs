//! Messages of the kernel read into values, without memory of their own for each route: there can
//! be a million.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;

use super::attributes::{address, attributes, number16, number32};
use super::message::{
    Entry, Hop, Kind, Message, NextHopObject, ObjectMeaning, PolicyRule, Position, TableRoute,
};
use crate::address::Address;
use crate::socket::split;
use crate::{Link, Neighbour, NeighbourState};

const HEADER: usize = 16;
/// Flag of a cached copy for one destination, which is not in a table.
const RTM_F_CLONED: u32 = 0x200;
/// An entry to answer for others by (`NTF_PROXY`).
const PROXY: u8 = 0x08;

/// Holds what the entry being read consists of.
#[derive(Debug, Default)]
pub(super) struct Reader {
    hops: Vec<Hop>,
    members: Vec<(u32, u16)>,
}

impl Reader {
    /// Every entry of a datagram that is understood; other messages are none of ours.
    pub(super) fn read(&mut self, datagram: &[u8], mut take: impl FnMut(&Message<'_>)) {
        for bytes in split(datagram) {
            let _understood = self.message(bytes, &mut take);
        }
    }

    fn message(&mut self, bytes: &[u8], take: &mut impl FnMut(&Message<'_>)) -> Option<()> {
        let kind = number16(bytes.get(4..)?)?;
        let flags = number16(bytes.get(6..)?)?;
        let body = bytes.get(HEADER..)?;
        // RTM_NEWLINK and so on: each kind has four numbers, of which these are the first two.
        let gone = kind & 3 == 1;
        match kind {
            16 | 17 => {
                let link = link(bytes)?;
                let entry = Entry::Link(&link);
                take(&Message { gone, entry });
            }
            20 | 21 => {
                let entry = Entry::Address(interface_address(body)?);
                take(&Message { gone, entry });
            }
            24 | 25 => {
                let entry = Entry::Route(self.route(body, flags)?);
                take(&Message { gone, entry });
            }
            28 | 29 => {
                let neighbour = neighbour(body)?;
                let entry = Entry::Neighbour(&neighbour);
                take(&Message { gone, entry });
            }
            32 | 33 => {
                let entry = Entry::Rule(rule(body)?);
                take(&Message { gone, entry });
            }
            104 | 105 => {
                let entry = Entry::NextHop(self.object(body)?);
                take(&Message { gone, entry });
            }
            _ => {}
        }
        Some(())
    }

    /// rtmsg: family, two lengths, type of service, table, protocol, scope, kind, flags.
    fn route(&mut self, body: &[u8], flags: u16) -> Option<TableRoute<'_>> {
        let header = body.get(..12)?;
        let any = any(header[0])?;
        if number32(&header[8..])? & RTM_F_CLONED != 0 {
            return None;
        }
        let mut route = TableRoute {
            destination: any,
            prefix_len: header[1],
            table: header[4].into(),
            kind: route_kind(header[7]),
            tos: header[3],
            sources: (header[2] != 0).then_some((any, header[2])),
            metric: 0,
            hops: &[],
            object: None,
            source: None,
            mtu: None,
            encapsulated: false,
            position: if flags & NLM_F_REPLACE != 0 {
                Position::Replacing
            } else if flags & NLM_F_APPEND != 0 {
                Position::Last
            } else {
                Position::First
            },
        };
        self.hops.clear();
        let mut only = Hop {
            gateway: None,
            ifindex: 0,
            weight: 1,
        };
        for (kind, value) in attributes(&body[12..]) {
            match kind {
                1 => route.destination = address(value)?,
                2 => route.sources = Some((address(value)?, header[2])),
                6 => route.metric = number32(value)?,
                7 => route.source = address(value),
                8 => route.mtu = mtu(value),
                9 => route.encapsulated |= read_hops(value, &mut self.hops)?,
                15 => route.table = number32(value)?,
                30 => route.object = number32(value),
                _ => route.encapsulated |= hop_attribute(&mut only, kind, value)?,
            }
        }
        if self.hops.is_empty() && only.ifindex != 0 {
            self.hops.push(only);
        }
        route.hops = &self.hops;
        Some(route)
    }

    /// nhmsg: family, scope, protocol, reserved, flags.
    fn object(&mut self, body: &[u8]) -> Option<NextHopObject<'_>> {
        let (mut id, mut is_group, mut blackhole, mut kernel) = (0, false, false, false);
        let mut hop = Hop {
            gateway: None,
            ifindex: 0,
            weight: 1,
        };
        self.members.clear();
        for (kind, value) in attributes(body.get(8..)?) {
            match kind {
                1 => id = number32(value)?,
                2 => {
                    is_group = true;
                    self.members
                        .extend(value.chunks_exact(8).filter_map(member));
                }
                // NEXTHOP_GRP_TYPE_MPATH is 0; resilient ones keep flows in buckets.
                3 => kernel |= number16(value)? != 0,
                4 => blackhole = true,
                5 => hop.ifindex = number32(value)?,
                6 => hop.gateway = address(value),
                7 | 8 | 11 => kernel = true,
                _ => {}
            }
        }
        let meaning = match () {
            () if kernel => ObjectMeaning::Kernel,
            () if is_group => ObjectMeaning::Group(&self.members),
            () if blackhole => ObjectMeaning::Blackhole,
            () => ObjectMeaning::Hop(hop),
        };
        Some(NextHopObject { id, meaning })
    }
}

/// `nexthop_grp`: id, weight less one in two parts, reserved.
fn member(bytes: &[u8]) -> Option<(u32, u16)> {
    let weight = u16::from_le_bytes([bytes[4], bytes[5]]);
    Some((number32(bytes)?, weight.saturating_add(1)))
}

/// rtnexthop: length, flags, weight less one, device; then attributes. Whether any is wrapped.
fn read_hops(bytes: &[u8], hops: &mut Vec<Hop>) -> Option<bool> {
    let mut rest = bytes;
    let mut encapsulated = false;
    while rest.len() >= 8 {
        let length = usize::from(number16(rest)?).max(8);
        let mut hop = Hop {
            gateway: None,
            ifindex: number32(&rest[4..])?,
            weight: u16::from(rest[3]) + 1,
        };
        for (kind, value) in attributes(rest.get(8..length)?) {
            encapsulated |= hop_attribute(&mut hop, kind, value)?;
        }
        hops.push(hop);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(encapsulated)
}

/// Whether packets are wrapped: a new destination, an encapsulation.
fn hop_attribute(hop: &mut Hop, kind: u16, value: &[u8]) -> Option<bool> {
    match kind {
        4 => hop.ifindex = number32(value)?,
        5 => hop.gateway = Some(address(value)?),
        // rtvia: the family stands before the address.
        18 => hop.gateway = Some(address(value.get(2..)?)?),
        19 | 21 | 22 => return Some(true),
        _ => {}
    }
    Some(false)
}

/// `RTAX_MTU`
fn mtu(metrics: &[u8]) -> Option<u32> {
    attributes(metrics)
        .find(|(kind, _)| *kind == 2)
        .and_then(|(_, value)| number32(value))
        .filter(|mtu| *mtu > 0)
}

fn route_kind(number: u8) -> Kind {
    match number {
        1 => Kind::Unicast,
        2..=5 => Kind::Local,
        6 => Kind::Blackhole,
        7 => Kind::Unreachable,
        8 => Kind::Prohibit,
        9 => Kind::Throw,
        _ => Kind::Other,
    }
}

/// ndmsg: family, padding, device, state, flags, type.
fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let header = body.get(..12)?;
    // Bridges report their entries to the same group.
    any(header[0])?;
    if header[10] & PROXY != 0 {
        return None;
    }
    let (mut neighbour_address, mut mac) = (None, None);
    for (kind, value) in attributes(&body[12..]) {
        match kind {
            1 => neighbour_address = address(value),
            2 => mac = value.try_into().ok(),
            _ => {}
        }
    }
    Some(Neighbour {
        ifindex: number32(&header[4..])?,
        address: neighbour_address?,
        mac,
        state: NeighbourState::from(number16(&header[8..])?),
    })
}

/// `fib_rule_hdr`: family, two lengths, type of service, table, reserved, action, flags.
fn rule(body: &[u8]) -> Option<PolicyRule> {
    let header = body.get(..12)?;
    let v6 = any(header[0])?.is_ipv6();
    let (mut priority, mut table) = (0, u32::from(header[4]));
    let mut selective = header[1] != 0 || header[2] != 0 || header[3] != 0;
    for (kind, value) in attributes(&body[12..]) {
        match kind {
            6 => priority = number32(value)?,
            15 => table = number32(value)?,
            // Interfaces, marks, tunnels, users, protocols, ports.
            3 | 4 | 10 | 12 | 13 | 17 | 20 | 22..=24 => selective = true,
            _ => {}
        }
    }
    // FR_ACT_TO_TBL
    let to_table = header[7] == 1;
    let usual = !selective
        && to_table
        && matches!((priority, table), (0, 255) | (32766, 254) | (32767, 253));
    Some(PolicyRule {
        v6,
        priority,
        table,
        usual,
    })
}

/// A device; not what bridges and wireless drivers say of one.
fn link(bytes: &[u8]) -> Option<Link> {
    if i32::from(*bytes.get(HEADER)?) != libc::AF_UNSPEC {
        return None;
    }
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    match message.payload {
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message),
        ) => Some(Link::from(message)).filter(|link| link.mtu > 0),
        _ => None,
    }
}

/// ifaddrmsg: family, length, flags, scope, device. `IFA_LOCAL` is the near end's.
fn interface_address(body: &[u8]) -> Option<Address> {
    let header = body.get(..8)?;
    let (mut far, mut near) = (None, None);
    for (kind, value) in attributes(&body[8..]) {
        match kind {
            1 => far = address(value),
            2 => near = address(value),
            _ => {}
        }
    }
    Some(Address {
        ifindex: number32(&header[4..])?,
        address: near.or(far)?,
        prefix_len: header[1],
        tentative: false,
    })
}

fn any(family: u8) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        libc::AF_INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}
