//! How long frames and payloads are.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "frame_min",
        Unit::Bytes,
        "Least of the frame lengths, both directions; null without packets.",
        Value::U64(|f| f.wire().min()),
    ),
    Column::new(
        "frame_max",
        Unit::Bytes,
        "Greatest of the frame lengths, both directions; null without packets.",
        Value::U64(|f| f.wire().max()),
    ),
    Column::new(
        "frame_mean",
        Unit::Bytes,
        "Mean of the frame lengths, both directions; null without packets.",
        Value::F64(|f| f.wire().mean()),
    ),
    Column::new(
        "frame_std",
        Unit::Bytes,
        "Sample standard deviation of the frame lengths, both directions; null below two packets.",
        Value::F64(|f| f.wire().std()),
    ),
    Column::new(
        "fwd_frame_min",
        Unit::Bytes,
        "Least of the frame lengths, forward; null without packets.",
        Value::U64(|f| f.forward.wire.min()),
    ),
    Column::new(
        "fwd_frame_max",
        Unit::Bytes,
        "Greatest of the frame lengths, forward; null without packets.",
        Value::U64(|f| f.forward.wire.max()),
    ),
    Column::new(
        "fwd_frame_mean",
        Unit::Bytes,
        "Mean of the frame lengths, forward; null without packets.",
        Value::F64(|f| f.forward.wire.mean()),
    ),
    Column::new(
        "fwd_frame_std",
        Unit::Bytes,
        "Sample standard deviation of the frame lengths, forward; null below two packets.",
        Value::F64(|f| f.forward.wire.std()),
    ),
    Column::new(
        "bwd_frame_min",
        Unit::Bytes,
        "Least of the frame lengths, backward; null without packets.",
        Value::U64(|f| f.backward.wire.min()),
    ),
    Column::new(
        "bwd_frame_max",
        Unit::Bytes,
        "Greatest of the frame lengths, backward; null without packets.",
        Value::U64(|f| f.backward.wire.max()),
    ),
    Column::new(
        "bwd_frame_mean",
        Unit::Bytes,
        "Mean of the frame lengths, backward; null without packets.",
        Value::F64(|f| f.backward.wire.mean()),
    ),
    Column::new(
        "bwd_frame_std",
        Unit::Bytes,
        "Sample standard deviation of the frame lengths, backward; null below two packets.",
        Value::F64(|f| f.backward.wire.std()),
    ),
    Column::new(
        "payload_min",
        Unit::Bytes,
        "Least of the payload lengths, empty ones included, both directions; null without packets.",
        Value::U64(|f| f.payload().min()),
    ),
    Column::new(
        "payload_max",
        Unit::Bytes,
        "Greatest of the payload lengths, empty ones included, both directions; null without packets.",
        Value::U64(|f| f.payload().max()),
    ),
    Column::new(
        "payload_mean",
        Unit::Bytes,
        "Mean of the payload lengths, empty ones included, both directions; null without packets.",
        Value::F64(|f| f.payload().mean()),
    ),
    Column::new(
        "payload_std",
        Unit::Bytes,
        "Sample standard deviation of the payload lengths, empty ones included, both directions; null below two packets.",
        Value::F64(|f| f.payload().std()),
    ),
    Column::new(
        "fwd_payload_min",
        Unit::Bytes,
        "Least of the payload lengths, empty ones included, forward; null without packets.",
        Value::U64(|f| f.forward.payload.min()),
    ),
    Column::new(
        "fwd_payload_max",
        Unit::Bytes,
        "Greatest of the payload lengths, empty ones included, forward; null without packets.",
        Value::U64(|f| f.forward.payload.max()),
    ),
    Column::new(
        "fwd_payload_mean",
        Unit::Bytes,
        "Mean of the payload lengths, empty ones included, forward; null without packets.",
        Value::F64(|f| f.forward.payload.mean()),
    ),
    Column::new(
        "fwd_payload_std",
        Unit::Bytes,
        "Sample standard deviation of the payload lengths, empty ones included, forward; null below two packets.",
        Value::F64(|f| f.forward.payload.std()),
    ),
    Column::new(
        "bwd_payload_min",
        Unit::Bytes,
        "Least of the payload lengths, empty ones included, backward; null without packets.",
        Value::U64(|f| f.backward.payload.min()),
    ),
    Column::new(
        "bwd_payload_max",
        Unit::Bytes,
        "Greatest of the payload lengths, empty ones included, backward; null without packets.",
        Value::U64(|f| f.backward.payload.max()),
    ),
    Column::new(
        "bwd_payload_mean",
        Unit::Bytes,
        "Mean of the payload lengths, empty ones included, backward; null without packets.",
        Value::F64(|f| f.backward.payload.mean()),
    ),
    Column::new(
        "bwd_payload_std",
        Unit::Bytes,
        "Sample standard deviation of the payload lengths, empty ones included, backward; null below two packets.",
        Value::F64(|f| f.backward.payload.std()),
    ),
];
