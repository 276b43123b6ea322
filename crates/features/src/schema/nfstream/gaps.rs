//! How packets follow each other.

use super::{dst2src, fraction, src2dst, whole};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "bidirectional_min_piat_ms",
        Unit::Milliseconds,
        "Shortest time between successive packets of either direction, 0 where the clock went back, rounded down; 0 below two packets.",
        Value::U64(|f| whole(f.gaps.min())),
    ),
    Column::new(
        "bidirectional_mean_piat_ms",
        Unit::Milliseconds,
        "Mean time between successive packets of either direction, 0 where the clock went back; 0 below two packets.",
        Value::F64(|f| fraction(f.gaps.mean())),
    ),
    Column::new(
        "bidirectional_stddev_piat_ms",
        Unit::Milliseconds,
        "Sample standard deviation of the times between successive packets of either direction, 0 where the clock went back; 0 below three packets.",
        Value::F64(|f| fraction(f.gaps.std())),
    ),
    Column::new(
        "bidirectional_max_piat_ms",
        Unit::Milliseconds,
        "Longest time between successive packets of either direction, 0 where the clock went back, rounded down; 0 below two packets.",
        Value::U64(|f| whole(f.gaps.max())),
    ),
    Column::new(
        "src2dst_min_piat_ms",
        Unit::Milliseconds,
        "Shortest time between successive packets from src to dst, 0 where the clock went back, rounded down; 0 below two packets.",
        Value::U64(|f| whole(src2dst(f).gaps.min())),
    ),
    Column::new(
        "src2dst_mean_piat_ms",
        Unit::Milliseconds,
        "Mean time between successive packets from src to dst, 0 where the clock went back; 0 below two packets.",
        Value::F64(|f| fraction(src2dst(f).gaps.mean())),
    ),
    Column::new(
        "src2dst_stddev_piat_ms",
        Unit::Milliseconds,
        "Sample standard deviation of the times between successive packets from src to dst, 0 where the clock went back; 0 below three packets.",
        Value::F64(|f| fraction(src2dst(f).gaps.std())),
    ),
    Column::new(
        "src2dst_max_piat_ms",
        Unit::Milliseconds,
        "Longest time between successive packets from src to dst, 0 where the clock went back, rounded down; 0 below two packets.",
        Value::U64(|f| whole(src2dst(f).gaps.max())),
    ),
    Column::new(
        "dst2src_min_piat_ms",
        Unit::Milliseconds,
        "Shortest time between successive packets from dst to src, 0 where the clock went back, rounded down; 0 below two packets.",
        Value::U64(|f| whole(dst2src(f).gaps.min())),
    ),
    Column::new(
        "dst2src_mean_piat_ms",
        Unit::Milliseconds,
        "Mean time between successive packets from dst to src, 0 where the clock went back; 0 below two packets.",
        Value::F64(|f| fraction(dst2src(f).gaps.mean())),
    ),
    Column::new(
        "dst2src_stddev_piat_ms",
        Unit::Milliseconds,
        "Sample standard deviation of the times between successive packets from dst to src, 0 where the clock went back; 0 below three packets.",
        Value::F64(|f| fraction(dst2src(f).gaps.std())),
    ),
    Column::new(
        "dst2src_max_piat_ms",
        Unit::Milliseconds,
        "Longest time between successive packets from dst to src, 0 where the clock went back, rounded down; 0 below two packets.",
        Value::U64(|f| whole(dst2src(f).gaps.max())),
    ),
];
