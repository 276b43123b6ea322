//! Matches and targets of iptables' modules. Layouts are those of `linux/netfilter/xt_*.h`.

use super::expression::Decision;
use crate::policy::packet::{AddressKind, PacketClass, Truth};

/// Whether a module matches; the error is an effect or a state that only the kernel has.
pub(crate) fn matches(
    name: &str,
    revision: u32,
    info: &[u8],
    class: &PacketClass,
    state: Option<u32>,
) -> Result<Truth, String> {
    let matched = match (name, revision) {
        ("comment", _) => Some(Truth::True),
        ("tcp" | "icmp" | "icmp6" | "icmpv6" | "sctp" | "dccp" | "esp" | "ah", _) => {
            // Of which protocol they are is all that is known of some packets.
            Some(class.protocol.map_or(Truth::Unknown, |_| Truth::False))
        }
        ("udp", 0) => udp(info, class),
        ("multiport", 1) => multiport(info, class),
        ("conntrack", 2 | 3) => conntrack(info, state),
        ("addrtype", 1) => address_type(info, class),
        ("mark", 1) => mark(info),
        ("pkttype" | "length" | "dscp" | "ecn" | "tos" | "ttl" | "hl" | "cgroup", _) => {
            Some(Truth::Unknown)
        }
        _ => None,
    };
    matched.ok_or_else(|| format!("uses the match `{name}` of iptables"))
}

/// What a module decides; the error is an effect that only the kernel has.
pub(crate) fn target(name: &str) -> Result<Decision, String> {
    match name {
        "REJECT" => Ok(Decision::Drop),
        _ => Err(format!("uses the target `{name}` of iptables")),
    }
}

fn half(info: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*info.get(at..)?.first_chunk()?))
}

fn word(info: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?))
}

fn is_within(port: Option<u16>, first: u16, last: u16) -> Truth {
    match port {
        _ if (first, last) == (0, u16::MAX) => Truth::True,
        Some(port) => (first..=last).contains(&port).into(),
        None => Truth::Unknown,
    }
}

/// `xt_udp`: the first and last source port, the first and last destination port, inversions.
fn udp(info: &[u8], class: &PacketClass) -> Option<Truth> {
    const INVERT_SOURCE: u8 = 1;
    const INVERT_DESTINATION: u8 = 2;
    let inverted = *info.get(8)?;
    let source = is_within(class.source_port, half(info, 0)?, half(info, 2)?);
    let to = class.destination_port;
    let destination = is_within(to, half(info, 4)?, half(info, 6)?);
    let source = source.negate_if(inverted & INVERT_SOURCE != 0);
    let ports = source.and(destination.negate_if(inverted & INVERT_DESTINATION != 0));
    let is_udp = class.protocol.map_or(Truth::Unknown, |_| Truth::True);
    Some(is_udp.and(ports))
}

/// `xt_multiport_v1`: flags, count, ports, which of them start a range, inversion.
fn multiport(info: &[u8], class: &PacketClass) -> Option<Truth> {
    const PORTS: usize = 2;
    const RANGES: usize = 32;
    const INVERT: usize = 47;
    const MAX_PORTS: usize = 15;
    let count = usize::from(*info.get(1)?).min(MAX_PORTS);
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < count {
        let first = half(info, PORTS + 2 * at)?;
        let is_range = *info.get(RANGES + at)? != 0;
        at += usize::from(is_range);
        ranges.push((first, half(info, PORTS + 2 * at)?));
        at += 1;
    }
    let any = |port: Option<u16>| {
        let within = ranges
            .iter()
            .map(|(first, last)| is_within(port, *first, *last));
        within.fold(Truth::False, Truth::or)
    };
    let to = any(class.destination_port);
    let matched = match info.first()? {
        0 => any(class.source_port),
        1 => to,
        2 => any(class.source_port).or(to),
        _ => return None,
    };
    Some(matched.negate_if(*info.get(INVERT)? != 0))
}

/// `xt_conntrack_mtinfo3` and its predecessor, which agree up to the masks.
fn conntrack(info: &[u8], state: Option<u32>) -> Option<Truth> {
    const MATCH_FLAGS: usize = 146;
    const INVERT_FLAGS: usize = 148;
    const STATE_MASK: usize = 150;
    const STATE: u16 = 1;
    if half(info, MATCH_FLAGS)? != STATE {
        return Some(Truth::Unknown);
    }
    let Some(state) = state else {
        return Some(Truth::Unknown);
    };
    let mask = u32::from(half(info, STATE_MASK)?);
    // A connection whose addresses are translated may match by that alone.
    const NAT_STATES: u32 = 1 << 6 | 1 << 7;
    let matched = match (state & mask != 0, mask & NAT_STATES != 0) {
        (true, _) => Truth::True,
        (false, true) => Truth::Unknown,
        (false, false) => Truth::False,
    };
    Some(matched.negate_if(half(info, INVERT_FLAGS)? & STATE != 0))
}

/// `xt_addrtype_info_v1`: masks of types for the source and the destination, flags.
fn address_type(info: &[u8], class: &PacketClass) -> Option<Truth> {
    const INVERT_SOURCE: u32 = 1;
    const INVERT_DESTINATION: u32 = 2;
    const LIMIT_TO_DEVICE: u32 = 4 | 8;
    let (source, destination, flags) = (half(info, 0)?, half(info, 2)?, word(info, 4)?);
    let mut matched = Truth::True;
    if source != 0 {
        // Where the source is depends on the packet.
        matched = Truth::Unknown.negate_if(flags & INVERT_SOURCE != 0);
    }
    if destination != 0 {
        let of_kind = |kind: AddressKind| destination & 1 << (kind as u16) != 0;
        let is = if flags & LIMIT_TO_DEVICE != 0 {
            Truth::Unknown
        } else {
            of_kind(class.destination_kind).into()
        };
        matched = matched.and(is.negate_if(flags & INVERT_DESTINATION != 0));
    }
    Some(matched)
}

/// `xt_mark_mtinfo1`: mark, mask, inversion. A packet that nothing marked has mark 0.
fn mark(info: &[u8]) -> Option<Truth> {
    let matched = Truth::from(word(info, 0)? == 0);
    Some(matched.negate_if(*info.get(8)? != 0))
}
