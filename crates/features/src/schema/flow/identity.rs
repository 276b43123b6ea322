//! The endpoints of a flow, its start, and the reason that the row ended.

use super::mac;
use crate::column::{Column, Unit, Value};
use crate::dissect::Tunnel;
use crate::flow::Flow;
use crate::text::ip;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "flow_id",
        Unit::None,
        "The same for the same endpoints, protocol, tags, start and initial sequence number, on every datapath; early rows share their flow's.",
        Value::U64(|f| Some(f.id())),
    ),
    Column::new(
        "end_reason",
        Unit::None,
        "Why the row was exported: idle, active, closed, stopped, full or early.",
        Value::Text(|f, out| out.write_str(f.end.name()).is_ok()),
    ),
    Column::new(
        "ip_version",
        Unit::None,
        "4 or 6.",
        Value::U8(|f| Some(f.key.version)),
    ),
    Column::new(
        "protocol",
        Unit::None,
        "IP protocol number, after extension headers.",
        Value::U8(|f| Some(f.key.protocol)),
    ),
    Column::new(
        "src_ip",
        Unit::None,
        "Address of the side that sent the first packet; of the other side if that packet was a SYN with ACK.",
        Value::Text(|f, out| ip(f.source().ip(f.key.version), out)),
    ),
    Column::new(
        "src_port",
        Unit::None,
        "Its port; of echoes (ICMP), their identifier if this side asks; 0 where the protocol has none.",
        Value::U16(|f| Some(f.source().port)),
    ),
    Column::new(
        "dst_ip",
        Unit::None,
        "Address of the other side.",
        Value::Text(|f, out| ip(f.destination().ip(f.key.version), out)),
    ),
    Column::new(
        "dst_port",
        Unit::None,
        "Its port, likewise.",
        Value::U16(|f| Some(f.destination().port)),
    ),
    Column::new(
        "vlan_id",
        Unit::None,
        "Outermost VLAN id of the first packet; 0 without a tag.",
        Value::U16(|f| Some(f.vlan)),
    ),
    Column::new(
        "tunnel_id",
        Unit::None,
        "Identifier of the innermost tunnel, of packets sent forward: VNI, GRE key or TEID; 0 without one, or when flows are told apart by outer addresses.",
        Value::U32(|f| Some(f.tunnel(f.initiator).map_or(0, Tunnel::id))),
    ),
    Column::new(
        "bwd_tunnel_id",
        Unit::None,
        "The same of packets sent backward: GRE keys and TEIDs differ between the directions.",
        Value::U32(|f| Some(f.tunnel(f.initiator.other()).map_or(0, Tunnel::id))),
    ),
    Column::new(
        "src_mac",
        Unit::None,
        "Hardware source address of the first packet; null without one.",
        Value::Text(|f, out| mac(f.source_mac, out)),
    ),
    Column::new(
        "dst_mac",
        Unit::None,
        "Hardware destination address of the first packet; null without one.",
        Value::Text(|f, out| mac(f.destination_mac, out)),
    ),
    Column::new(
        "first_seen",
        Unit::Nanoseconds,
        "Time of the first packet.",
        Value::Time(|f| Some(f.first_ns)),
    ),
    Column::new(
        "last_seen",
        Unit::Nanoseconds,
        "Latest time of any packet.",
        Value::Time(|f| Some(f.last_ns)),
    ),
    Column::new(
        "midstream",
        Unit::None,
        "Of TCP: the first packet was not a SYN without ACK.",
        Value::Bool(|f| Some(f.midstream)),
    ),
    Column::new(
        "icmp_type",
        Unit::None,
        "Of the first packet; null unless ICMP or ICMPv6.",
        Value::U8(|f| f.icmp.map(|icmp| icmp.kind)),
    ),
    Column::new(
        "icmp_code",
        Unit::None,
        "Of the first packet; null unless ICMP or ICMPv6.",
        Value::U8(|f| f.icmp.map(|icmp| icmp.code)),
    ),
    Column::new(
        "icmp_id",
        Unit::None,
        "Identifier of the first packet if it is an echo; null unless ICMP or ICMPv6.",
        Value::U16(|f| f.icmp.map(|icmp| icmp.identifier)),
    ),
];
