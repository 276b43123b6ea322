//! The values in a packet's headers.

use crate::column::{Column, Unit, Value};
use crate::dissect::{Fragment, Icmp, Tcp};
use crate::packets::Facts;

pub(super) const COLUMNS: &[Column<Facts>] = &[
    Column::new(
        "ttl",
        Unit::None,
        "TTL, or hop limit.",
        Value::U8(|p| Some(p.packet.ttl)),
    ),
    Column::new(
        "dscp",
        Unit::None,
        "The upper six bits of the traffic class.",
        Value::U8(|p| Some(p.packet.tos >> 2)),
    ),
    Column::new(
        "ecn",
        Unit::None,
        "The lower two bits of the traffic class.",
        Value::U8(|p| Some(p.packet.tos & 3)),
    ),
    Column::new(
        "ip_id",
        Unit::None,
        "IP identification; of IPv6 in fragments only, else null.",
        Value::U32(identification),
    ),
    Column::new(
        "fragment",
        Unit::None,
        "Whether it is a fragment, the first one included.",
        Value::Bool(|p| Some(p.packet.fragment != Fragment::None)),
    ),
    Column::new(
        "later_fragment",
        Unit::None,
        "Whether it is a fragment, and not the first one.",
        Value::Bool(|p| Some(p.packet.fragment == Fragment::Later)),
    ),
    Column::new(
        "tcp_flags",
        Unit::None,
        "FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128; null where no TCP header was read.",
        Value::U8(|p| tcp(p, |tcp| tcp.flags)),
    ),
    Column::new(
        "tcp_seq",
        Unit::None,
        "TCP sequence number as sent; null where no TCP header was read.",
        Value::U32(|p| tcp(p, |tcp| tcp.sequence)),
    ),
    Column::new(
        "tcp_ack",
        Unit::None,
        "TCP acknowledgement number as sent; null where no TCP header was read.",
        Value::U32(|p| tcp(p, |tcp| tcp.acknowledgement)),
    ),
    Column::new(
        "tcp_window",
        Unit::Bytes,
        "TCP receive window as sent, not scaled; null where no TCP header was read.",
        Value::U16(|p| tcp(p, |tcp| tcp.window)),
    ),
    Column::new(
        "tcp_window_scale",
        Unit::None,
        "Shift of the window scale option; null without one, and but for SYNs.",
        Value::U8(|p| p.packet.tcp.and_then(|tcp| tcp.window_scale)),
    ),
    Column::new(
        "icmp_type",
        Unit::None,
        "ICMP or ICMPv6 type; null where no such header was read.",
        Value::U8(|p| icmp(p, |icmp| icmp.kind)),
    ),
    Column::new(
        "icmp_code",
        Unit::None,
        "ICMP or ICMPv6 code; null where no such header was read.",
        Value::U8(|p| icmp(p, |icmp| icmp.code)),
    ),
    Column::new(
        "icmp_id",
        Unit::None,
        "Identifier of an echo, of other messages 0; null where no such header was read.",
        Value::U16(|p| icmp(p, |icmp| icmp.identifier)),
    ),
];

fn identification(facts: &Facts) -> Option<u32> {
    let packet = &facts.packet;
    let is_there = packet.key.version == 4 || packet.fragment != Fragment::None;
    is_there.then_some(packet.identification)
}

fn tcp<T>(facts: &Facts, value: fn(&Tcp) -> T) -> Option<T> {
    facts.packet.tcp.as_ref().map(value)
}

fn icmp<T>(facts: &Facts, value: fn(&Icmp) -> T) -> Option<T> {
    facts.packet.icmp.as_ref().map(value)
}
