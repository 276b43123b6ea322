//! When, how many and how much.

use super::{dst2src, duration, milliseconds, src2dst};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "bidirectional_first_seen_ms",
        Unit::Milliseconds,
        "Time of the first packet since the epoch, rounded down.",
        Value::I64(|f| Some(milliseconds(f.first_ns))),
    ),
    Column::new(
        "bidirectional_last_seen_ms",
        Unit::Milliseconds,
        "Latest time of any packet since the epoch, rounded down.",
        Value::I64(|f| Some(milliseconds(f.last_ns))),
    ),
    Column::new(
        "bidirectional_duration_ms",
        Unit::Milliseconds,
        "bidirectional_last_seen_ms less bidirectional_first_seen_ms.",
        Value::I64(|f| Some(milliseconds(f.last_ns) - milliseconds(f.first_ns))),
    ),
    Column::new(
        "bidirectional_packets",
        Unit::Packets,
        "Packets of both directions.",
        Value::U64(|f| Some(f.packets())),
    ),
    Column::new(
        "bidirectional_bytes",
        Unit::Bytes,
        "Bytes of whole frames as on the wire, both directions.",
        Value::U64(|f| Some(f.wire().sum)),
    ),
    Column::new(
        "src2dst_first_seen_ms",
        Unit::Milliseconds,
        "Time of the first packet from src to dst since the epoch, rounded down; 0 without packets.",
        Value::I64(|f| Some(milliseconds(src2dst(f).first_ns))),
    ),
    Column::new(
        "src2dst_last_seen_ms",
        Unit::Milliseconds,
        "Latest time of any packet from src to dst since the epoch, rounded down; 0 without packets.",
        Value::I64(|f| Some(milliseconds(src2dst(f).last_ns))),
    ),
    Column::new(
        "src2dst_duration_ms",
        Unit::Milliseconds,
        "src2dst_last_seen_ms less src2dst_first_seen_ms.",
        Value::I64(|f| Some(duration(src2dst(f)))),
    ),
    Column::new(
        "src2dst_packets",
        Unit::Packets,
        "Packets from src to dst.",
        Value::U64(|f| Some(src2dst(f).packets())),
    ),
    Column::new(
        "src2dst_bytes",
        Unit::Bytes,
        "Bytes of whole frames as on the wire, from src to dst.",
        Value::U64(|f| Some(src2dst(f).wire.sum)),
    ),
    Column::new(
        "dst2src_first_seen_ms",
        Unit::Milliseconds,
        "Time of the first packet from dst to src since the epoch, rounded down; 0 without packets.",
        Value::I64(|f| Some(milliseconds(dst2src(f).first_ns))),
    ),
    Column::new(
        "dst2src_last_seen_ms",
        Unit::Milliseconds,
        "Latest time of any packet from dst to src since the epoch, rounded down; 0 without packets.",
        Value::I64(|f| Some(milliseconds(dst2src(f).last_ns))),
    ),
    Column::new(
        "dst2src_duration_ms",
        Unit::Milliseconds,
        "dst2src_last_seen_ms less dst2src_first_seen_ms.",
        Value::I64(|f| Some(duration(dst2src(f)))),
    ),
    Column::new(
        "dst2src_packets",
        Unit::Packets,
        "Packets from dst to src.",
        Value::U64(|f| Some(dst2src(f).packets())),
    ),
    Column::new(
        "dst2src_bytes",
        Unit::Bytes,
        "Bytes of whole frames as on the wire, from dst to src.",
        Value::U64(|f| Some(dst2src(f).wire.sum)),
    ),
];
