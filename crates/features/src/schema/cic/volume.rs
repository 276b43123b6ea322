//! How much was sent.

use super::{micros, per_second};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "Flow Duration",
        Unit::Microseconds,
        "From the first packet to the latest.",
        Value::F64(|f| Some(micros(f.duration_ns()))),
    ),
    Column::new(
        "Total Fwd Packet",
        Unit::Packets,
        "Packets sent forward.",
        Value::U64(|f| Some(f.forward.packets())),
    ),
    Column::new(
        "Total Bwd packets",
        Unit::Packets,
        "Packets sent backward.",
        Value::U64(|f| Some(f.backward.packets())),
    ),
    Column::new(
        "Total Length of Fwd Packet",
        Unit::Bytes,
        "Payload sent forward: IP length less all headers.",
        Value::U64(|f| Some(f.forward.payload.sum)),
    ),
    Column::new(
        "Total Length of Bwd Packet",
        Unit::Bytes,
        "Payload sent backward: IP length less all headers.",
        Value::U64(|f| Some(f.backward.payload.sum)),
    ),
    Column::new(
        "Fwd Packet Length Max",
        Unit::Bytes,
        "Greatest payload sent forward; null without packets.",
        Value::U64(|f| f.forward.payload.max()),
    ),
    Column::new(
        "Fwd Packet Length Min",
        Unit::Bytes,
        "Least payload sent forward, empty ones included; null without packets.",
        Value::U64(|f| f.forward.payload.min()),
    ),
    Column::new(
        "Fwd Packet Length Mean",
        Unit::Bytes,
        "Mean payload sent forward, empty ones included; null without packets.",
        Value::F64(|f| f.forward.payload.mean()),
    ),
    Column::new(
        "Fwd Packet Length Std",
        Unit::Bytes,
        "Sample standard deviation of payloads sent forward, empty ones included; null below two packets.",
        Value::F64(|f| f.forward.payload.std()),
    ),
    Column::new(
        "Bwd Packet Length Max",
        Unit::Bytes,
        "Greatest payload sent backward; null without packets.",
        Value::U64(|f| f.backward.payload.max()),
    ),
    Column::new(
        "Bwd Packet Length Min",
        Unit::Bytes,
        "Least payload sent backward, empty ones included; null without packets.",
        Value::U64(|f| f.backward.payload.min()),
    ),
    Column::new(
        "Bwd Packet Length Mean",
        Unit::Bytes,
        "Mean payload sent backward, empty ones included; null without packets.",
        Value::F64(|f| f.backward.payload.mean()),
    ),
    Column::new(
        "Bwd Packet Length Std",
        Unit::Bytes,
        "Sample standard deviation of payloads sent backward, empty ones included; null below two packets.",
        Value::F64(|f| f.backward.payload.std()),
    ),
    Column::new(
        "Flow Bytes/s",
        Unit::BytesPerSecond,
        "Payload of both directions by duration; null when that is zero.",
        Value::F64(|f| per_second(f.payload().sum, f.duration_ns())),
    ),
    Column::new(
        "Flow Packets/s",
        Unit::PacketsPerSecond,
        "Packets by duration; null when that is zero.",
        Value::F64(|f| per_second(f.packets(), f.duration_ns())),
    ),
];
