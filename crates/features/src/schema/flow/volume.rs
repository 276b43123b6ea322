//! How much was sent, by layer.

use super::of;
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    shared::PACKETS,
    shared::FWD_PACKETS,
    shared::BWD_PACKETS,
    shared::BYTES,
    shared::FWD_BYTES,
    shared::BWD_BYTES,
    shared::FWD_IP_BYTES,
    shared::BWD_IP_BYTES,
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
    shared::PAYLOAD_BYTES,
    shared::FWD_PAYLOAD_BYTES,
    shared::BWD_PAYLOAD_BYTES,
    shared::FWD_PAYLOAD_PACKETS,
    shared::BWD_PAYLOAD_PACKETS,
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
