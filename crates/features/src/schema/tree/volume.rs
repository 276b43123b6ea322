//! How much was sent.

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
        "bytes",
        Unit::Bytes,
        "Bytes of whole frames, both directions.",
        Value::U64(|f| Some(f.wire().sum)),
    ),
    Column::new(
        "payload_bytes",
        Unit::Bytes,
        "Bytes behind the transport header, both directions.",
        Value::U64(|f| Some(f.payload().sum)),
    ),
    Column::new(
        "fwd_packets",
        Unit::Packets,
        "Packets sent forward.",
        Value::U64(|f| Some(f.forward.packets())),
    ),
    Column::new(
        "fwd_bytes",
        Unit::Bytes,
        "Bytes of whole frames sent forward.",
        Value::U64(|f| Some(f.forward.wire.sum)),
    ),
    Column::new(
        "fwd_ip_bytes",
        Unit::Bytes,
        "Bytes of IP packets sent forward.",
        Value::U64(|f| Some(f.forward.ip_bytes)),
    ),
    Column::new(
        "fwd_payload_bytes",
        Unit::Bytes,
        "Bytes behind the transport header sent forward.",
        Value::U64(|f| Some(f.forward.payload.sum)),
    ),
    Column::new(
        "fwd_payload_packets",
        Unit::Packets,
        "Packets with payload sent forward.",
        Value::U64(|f| Some(f.forward.payload_packets)),
    ),
    Column::new(
        "fwd_bulks",
        Unit::Count,
        "Bulks sent forward, as flow.v1 defines them.",
        Value::U64(|f| Some(f.forward.bulks.count)),
    ),
    Column::new(
        "fwd_bulk_packets",
        Unit::Packets,
        "Packets in bulks sent forward.",
        Value::U64(|f| Some(f.forward.bulks.packets)),
    ),
    Column::new(
        "bwd_packets",
        Unit::Packets,
        "Packets sent backward.",
        Value::U64(|f| Some(f.backward.packets())),
    ),
    Column::new(
        "bwd_bytes",
        Unit::Bytes,
        "Bytes of whole frames sent backward.",
        Value::U64(|f| Some(f.backward.wire.sum)),
    ),
    Column::new(
        "bwd_ip_bytes",
        Unit::Bytes,
        "Bytes of IP packets sent backward.",
        Value::U64(|f| Some(f.backward.ip_bytes)),
    ),
    Column::new(
        "bwd_payload_bytes",
        Unit::Bytes,
        "Bytes behind the transport header sent backward.",
        Value::U64(|f| Some(f.backward.payload.sum)),
    ),
    Column::new(
        "bwd_payload_packets",
        Unit::Packets,
        "Packets with payload sent backward.",
        Value::U64(|f| Some(f.backward.payload_packets)),
    ),
    Column::new(
        "bwd_bulks",
        Unit::Count,
        "Bulks sent backward, as flow.v1 defines them.",
        Value::U64(|f| Some(f.backward.bulks.count)),
    ),
    Column::new(
        "bwd_bulk_packets",
        Unit::Packets,
        "Packets in bulks sent backward.",
        Value::U64(|f| Some(f.backward.bulks.packets)),
    ),
];
