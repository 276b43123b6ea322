//! How much was sent, by layer.

use super::of;
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "packets",
        Unit::Packets,
        "Packets of both directions.",
        Value::U64(|f| Some(f.packets())),
    ),
    Column::new(
        "fwd_packets",
        Unit::Packets,
        "Packets sent forward.",
        Value::U64(|f| Some(f.forward.packets())),
    ),
    Column::new(
        "bwd_packets",
        Unit::Packets,
        "Packets sent backward.",
        Value::U64(|f| Some(f.backward.packets())),
    ),
    Column::new(
        "bytes",
        Unit::Bytes,
        "Bytes of whole frames, both directions.",
        Value::U64(|f| Some(f.wire().sum)),
    ),
    Column::new(
        "fwd_bytes",
        Unit::Bytes,
        "Bytes of whole frames sent forward, without check sequences, as on the wire.",
        Value::U64(|f| Some(f.forward.wire.sum)),
    ),
    Column::new(
        "bwd_bytes",
        Unit::Bytes,
        "Bytes of whole frames sent backward, without check sequences, as on the wire.",
        Value::U64(|f| Some(f.backward.wire.sum)),
    ),
    Column::new(
        "fwd_ip_bytes",
        Unit::Bytes,
        "Bytes of IP packets sent forward, by their headers.",
        Value::U64(|f| Some(f.forward.ip_bytes)),
    ),
    Column::new(
        "bwd_ip_bytes",
        Unit::Bytes,
        "Bytes of IP packets sent backward, by their headers.",
        Value::U64(|f| Some(f.backward.ip_bytes)),
    ),
    Column::new(
        "fwd_ip_hdr_bytes",
        Unit::Bytes,
        "Bytes of IP headers with options and extension headers, sent forward.",
        Value::U64(|f| Some(f.forward.ip_header_bytes)),
    ),
    Column::new(
        "bwd_ip_hdr_bytes",
        Unit::Bytes,
        "Bytes of IP headers with options and extension headers, sent backward.",
        Value::U64(|f| Some(f.backward.ip_header_bytes)),
    ),
    Column::new(
        "fwd_l4_hdr_bytes",
        Unit::Bytes,
        "Bytes of transport headers sent forward.",
        Value::U64(|f| Some(f.forward.l4_header_bytes)),
    ),
    Column::new(
        "bwd_l4_hdr_bytes",
        Unit::Bytes,
        "Bytes of transport headers sent backward.",
        Value::U64(|f| Some(f.backward.l4_header_bytes)),
    ),
    Column::new(
        "fwd_min_l4_hdr",
        Unit::Bytes,
        "Shortest transport header sent forward; null without packets.",
        Value::U32(|f| of(&f.forward, |d| d.min_l4_header)),
    ),
    Column::new(
        "bwd_min_l4_hdr",
        Unit::Bytes,
        "Shortest transport header sent backward; null without packets.",
        Value::U32(|f| of(&f.backward, |d| d.min_l4_header)),
    ),
    Column::new(
        "payload_bytes",
        Unit::Bytes,
        "Bytes behind the transport headers, both directions.",
        Value::U64(|f| Some(f.payload().sum)),
    ),
    Column::new(
        "fwd_payload_bytes",
        Unit::Bytes,
        "Bytes behind the transport headers, sent forward: IP length less all headers.",
        Value::U64(|f| Some(f.forward.payload.sum)),
    ),
    Column::new(
        "bwd_payload_bytes",
        Unit::Bytes,
        "Bytes behind the transport headers, sent backward: IP length less all headers.",
        Value::U64(|f| Some(f.backward.payload.sum)),
    ),
    Column::new(
        "fwd_payload_packets",
        Unit::Packets,
        "Packets with payload sent forward.",
        Value::U64(|f| Some(f.forward.payload_packets)),
    ),
    Column::new(
        "bwd_payload_packets",
        Unit::Packets,
        "Packets with payload sent backward.",
        Value::U64(|f| Some(f.backward.payload_packets)),
    ),
    Column::new(
        "fwd_min_ttl",
        Unit::None,
        "Least TTL or hop limit sent forward; null without packets.",
        Value::U8(|f| of(&f.forward, |d| d.min_ttl)),
    ),
    Column::new(
        "fwd_max_ttl",
        Unit::None,
        "Greatest TTL or hop limit sent forward; null without packets.",
        Value::U8(|f| of(&f.forward, |d| d.max_ttl)),
    ),
    Column::new(
        "fwd_tos",
        Unit::None,
        "DSCP and ECN of the first packet sent forward; null without packets.",
        Value::U8(|f| of(&f.forward, |d| d.tos)),
    ),
    Column::new(
        "bwd_min_ttl",
        Unit::None,
        "Least TTL or hop limit sent backward; null without packets.",
        Value::U8(|f| of(&f.backward, |d| d.min_ttl)),
    ),
    Column::new(
        "bwd_max_ttl",
        Unit::None,
        "Greatest TTL or hop limit sent backward; null without packets.",
        Value::U8(|f| of(&f.backward, |d| d.max_ttl)),
    ),
    Column::new(
        "bwd_tos",
        Unit::None,
        "DSCP and ECN of the first packet sent backward; null without packets.",
        Value::U8(|f| of(&f.backward, |d| d.tos)),
    ),
];
