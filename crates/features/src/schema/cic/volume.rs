//! How much was sent.

use super::{micros, per_second};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::columns::{columns, cross};

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    &[
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
    ],
    cross!(
        |flow| [
            ("Fwd ", "forward", flow.forward.payload),
            ("Bwd ", "backward", flow.backward.payload),
        ],
        |payload| [
            ("Packet Length Max", Bytes, "Greatest payload sent " _ "; null without packets.", U64(payload.max())),
            ("Packet Length Min", Bytes, "Least payload sent " _ ", empty ones included; null without packets.", U64(payload.min())),
            ("Packet Length Mean", Bytes, "Mean payload sent " _ ", empty ones included; null without packets.", F64(payload.mean())),
            ("Packet Length Std", Bytes, "Sample standard deviation of payloads sent " _ ", empty ones included; null below two packets.", F64(payload.std())),
        ]
    ),
    &[
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
    ],
];
