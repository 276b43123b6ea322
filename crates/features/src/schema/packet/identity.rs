//! When, in which flow, and from whom to whom.

use crate::column::{Column, Unit, Value};
use crate::dissect::Tunnel;
use crate::key::Endpoint;
use crate::packets::Facts;
use crate::schema::flow::mac;
use crate::text::ip;

pub(super) const COLUMNS: &[Column<Facts>] = &[
    Column::new(
        "time",
        Unit::Nanoseconds,
        "When the packet was captured.",
        Value::Time(|p| Some(p.packet.time_ns)),
    ),
    Column::new(
        "flow_id",
        Unit::None,
        "That of the packet's flow in flow.v1.",
        Value::U64(|p| Some(p.place.flow_id)),
    ),
    Column::new(
        "packets_before",
        Unit::Packets,
        "Packets of its flow that came before it.",
        Value::U64(|p| Some(p.place.before)),
    ),
    Column::new(
        "forward",
        Unit::None,
        "Whether the side sent it that is the flow's source in flow.v1.",
        Value::Bool(|p| Some(p.place.forward)),
    ),
    Column::new(
        "iat_ns",
        Unit::Nanoseconds,
        "Time since the packet of the flow before, in either direction, 0 if that one is younger; null for the first.",
        Value::U64(|p| p.place.gap_ns),
    ),
    Column::new(
        "out_of_order",
        Unit::None,
        "Whether it is older than a packet of its flow that came before it.",
        Value::Bool(|p| Some(p.place.out_of_order)),
    ),
    Column::new(
        "ip_version",
        Unit::None,
        "4 or 6.",
        Value::U8(|p| Some(p.packet.key.version)),
    ),
    Column::new(
        "protocol",
        Unit::None,
        "IP protocol number, after extension headers.",
        Value::U8(|p| Some(p.packet.key.protocol)),
    ),
    Column::new(
        "src_ip",
        Unit::None,
        "Address of the sender.",
        Value::Text(|p, out| ip(source(p).ip(p.packet.key.version), out)),
    ),
    Column::new(
        "src_port",
        Unit::None,
        "Port of the sender; of an echo request (ICMP), its identifier; of a later fragment, its first fragment's; 0 where there is none.",
        Value::U16(|p| Some(source(p).port)),
    ),
    Column::new(
        "dst_ip",
        Unit::None,
        "Address of the receiver.",
        Value::Text(|p, out| ip(destination(p).ip(p.packet.key.version), out)),
    ),
    Column::new(
        "dst_port",
        Unit::None,
        "Port of the receiver; of an echo reply, its identifier; otherwise as src_port.",
        Value::U16(|p| Some(destination(p).port)),
    ),
    Column::new(
        "src_mac",
        Unit::None,
        "Hardware address of the sender's side of the link; null where the link has none.",
        Value::Text(|p, out| mac(p.packet.link.source_mac, out)),
    ),
    Column::new(
        "dst_mac",
        Unit::None,
        "Hardware address of the receiver's side of the link; null where the link has none.",
        Value::Text(|p, out| mac(p.packet.link.destination_mac, out)),
    ),
    Column::new(
        "vlan_id",
        Unit::None,
        "Outermost VLAN id; 0 without a tag.",
        Value::U16(|p| Some(p.packet.link.vlan)),
    ),
    Column::new(
        "vlan_tags",
        Unit::Count,
        "VLAN tags.",
        Value::U8(|p| Some(p.packet.link.vlan_tags)),
    ),
    Column::new(
        "tunnel_id",
        Unit::None,
        "VNI, GRE key or TEID of the innermost tunnel that was opened; 0 outside of any.",
        Value::U32(|p| Some(p.packet.tunnel.map_or(0, Tunnel::id))),
    ),
];

fn source(facts: &Facts) -> Endpoint {
    facts.packet.key.endpoint(facts.packet.sender)
}

fn destination(facts: &Facts) -> Endpoint {
    facts.packet.key.endpoint(facts.packet.sender.other())
}
