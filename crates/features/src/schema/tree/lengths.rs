//! How long packets are, and what their IP headers say.

use super::mean_q8;
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "fwd_frame_min",
        Unit::Bytes,
        "Least of the frame lengths sent forward.",
        Value::U64(|f| Some(f.forward.wire.min.into())),
    ),
    Column::new(
        "fwd_frame_max",
        Unit::Bytes,
        "Greatest of the frame lengths sent forward.",
        Value::U64(|f| Some(f.forward.wire.max.into())),
    ),
    Column::new(
        "fwd_frame_mean_q8",
        Unit::Bytes,
        "256 times the mean of the frame lengths sent forward, rounded down.",
        Value::U64(|f| Some(mean_q8(&f.forward.wire))),
    ),
    Column::new(
        "fwd_payload_min",
        Unit::Bytes,
        "Least of the payload lengths, empty ones included, sent forward.",
        Value::U64(|f| Some(f.forward.payload.min.into())),
    ),
    Column::new(
        "fwd_payload_max",
        Unit::Bytes,
        "Greatest of the payload lengths, empty ones included, sent forward.",
        Value::U64(|f| Some(f.forward.payload.max.into())),
    ),
    Column::new(
        "fwd_payload_mean_q8",
        Unit::Bytes,
        "256 times the mean of the payload lengths, empty ones included, sent forward, rounded down.",
        Value::U64(|f| Some(mean_q8(&f.forward.payload))),
    ),
    Column::new(
        "fwd_ttl_min",
        Unit::None,
        "Least time to live or hop limit sent forward.",
        Value::U64(|f| Some(f.forward.min_ttl.into())),
    ),
    Column::new(
        "fwd_ttl_max",
        Unit::None,
        "Greatest time to live or hop limit sent forward.",
        Value::U64(|f| Some(f.forward.max_ttl.into())),
    ),
    Column::new(
        "fwd_tos",
        Unit::None,
        "DSCP and ECN of the first packet sent forward, as one byte.",
        Value::U64(|f| Some(f.forward.tos.into())),
    ),
    Column::new(
        "bwd_frame_min",
        Unit::Bytes,
        "Least of the frame lengths sent backward.",
        Value::U64(|f| Some(f.backward.wire.min.into())),
    ),
    Column::new(
        "bwd_frame_max",
        Unit::Bytes,
        "Greatest of the frame lengths sent backward.",
        Value::U64(|f| Some(f.backward.wire.max.into())),
    ),
    Column::new(
        "bwd_frame_mean_q8",
        Unit::Bytes,
        "256 times the mean of the frame lengths sent backward, rounded down.",
        Value::U64(|f| Some(mean_q8(&f.backward.wire))),
    ),
    Column::new(
        "bwd_payload_min",
        Unit::Bytes,
        "Least of the payload lengths, empty ones included, sent backward.",
        Value::U64(|f| Some(f.backward.payload.min.into())),
    ),
    Column::new(
        "bwd_payload_max",
        Unit::Bytes,
        "Greatest of the payload lengths, empty ones included, sent backward.",
        Value::U64(|f| Some(f.backward.payload.max.into())),
    ),
    Column::new(
        "bwd_payload_mean_q8",
        Unit::Bytes,
        "256 times the mean of the payload lengths, empty ones included, sent backward, rounded down.",
        Value::U64(|f| Some(mean_q8(&f.backward.payload))),
    ),
    Column::new(
        "bwd_ttl_min",
        Unit::None,
        "Least time to live or hop limit sent backward.",
        Value::U64(|f| Some(f.backward.min_ttl.into())),
    ),
    Column::new(
        "bwd_ttl_max",
        Unit::None,
        "Greatest time to live or hop limit sent backward.",
        Value::U64(|f| Some(f.backward.max_ttl.into())),
    ),
    Column::new(
        "bwd_tos",
        Unit::None,
        "DSCP and ECN of the first packet sent backward, as one byte.",
        Value::U64(|f| Some(f.backward.tos.into())),
    ),
];
