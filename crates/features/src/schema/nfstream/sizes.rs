//! How long packets are.

use super::{dst2src, or_zero, src2dst};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "bidirectional_min_ps",
        Unit::Bytes,
        "Least length of the frames on the wire, of packets of either direction.",
        Value::U64(|f| or_zero(f.wire().min())),
    ),
    Column::new(
        "bidirectional_mean_ps",
        Unit::Bytes,
        "Mean length of the frames on the wire, of packets of either direction.",
        Value::F64(|f| or_zero(f.wire().mean())),
    ),
    Column::new(
        "bidirectional_stddev_ps",
        Unit::Bytes,
        "Sample standard deviation of the lengths of the frames on the wire, of packets of either direction; 0 below two packets.",
        Value::F64(|f| or_zero(f.wire().std())),
    ),
    Column::new(
        "bidirectional_max_ps",
        Unit::Bytes,
        "Greatest length of the frames on the wire, of packets of either direction.",
        Value::U64(|f| or_zero(f.wire().max())),
    ),
    Column::new(
        "src2dst_min_ps",
        Unit::Bytes,
        "Least length of the frames on the wire, of packets from src to dst; 0 without packets.",
        Value::U64(|f| or_zero(src2dst(f).wire.min())),
    ),
    Column::new(
        "src2dst_mean_ps",
        Unit::Bytes,
        "Mean length of the frames on the wire, of packets from src to dst; 0 without packets.",
        Value::F64(|f| or_zero(src2dst(f).wire.mean())),
    ),
    Column::new(
        "src2dst_stddev_ps",
        Unit::Bytes,
        "Sample standard deviation of the lengths of the frames on the wire, of packets from src to dst; 0 below two packets.",
        Value::F64(|f| or_zero(src2dst(f).wire.std())),
    ),
    Column::new(
        "src2dst_max_ps",
        Unit::Bytes,
        "Greatest length of the frames on the wire, of packets from src to dst; 0 without packets.",
        Value::U64(|f| or_zero(src2dst(f).wire.max())),
    ),
    Column::new(
        "dst2src_min_ps",
        Unit::Bytes,
        "Least length of the frames on the wire, of packets from dst to src; 0 without packets.",
        Value::U64(|f| or_zero(dst2src(f).wire.min())),
    ),
    Column::new(
        "dst2src_mean_ps",
        Unit::Bytes,
        "Mean length of the frames on the wire, of packets from dst to src; 0 without packets.",
        Value::F64(|f| or_zero(dst2src(f).wire.mean())),
    ),
    Column::new(
        "dst2src_stddev_ps",
        Unit::Bytes,
        "Sample standard deviation of the lengths of the frames on the wire, of packets from dst to src; 0 below two packets.",
        Value::F64(|f| or_zero(dst2src(f).wire.std())),
    ),
    Column::new(
        "dst2src_max_ps",
        Unit::Bytes,
        "Greatest length of the frames on the wire, of packets from dst to src; 0 without packets.",
        Value::U64(|f| or_zero(dst2src(f).wire.max())),
    ),
];
