//! How packets follow each other.

use super::{of, per_second};
use crate::column::{Column, Unit, Value};
use crate::flow::{Direction, Flow};
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    shared::DURATION_NS,
    Column::new(
        "iat_min_ns",
        Unit::Nanoseconds,
        "Shortest time between successive packets of either direction, 0 where the clock went back; null below two packets.",
        Value::U64(|f| f.gaps.min()),
    ),
    Column::new(
        "iat_max_ns",
        Unit::Nanoseconds,
        "Longest time between successive packets of either direction, 0 where the clock went back; null below two packets.",
        Value::U64(|f| f.gaps.max()),
    ),
    Column::new(
        "iat_mean_ns",
        Unit::Nanoseconds,
        "Mean time between successive packets of either direction, 0 where the clock went back; null below two packets.",
        Value::F64(|f| f.gaps.mean()),
    ),
    Column::new(
        "iat_std_ns",
        Unit::Nanoseconds,
        "Sample standard deviation of the times between successive packets of either direction; null below three packets.",
        Value::F64(|f| f.gaps.std()),
    ),
    Column::new(
        "fwd_iat_min_ns",
        Unit::Nanoseconds,
        "Shortest time between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::U64(|f| f.forward.gaps.min()),
    ),
    Column::new(
        "fwd_iat_max_ns",
        Unit::Nanoseconds,
        "Longest time between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::U64(|f| f.forward.gaps.max()),
    ),
    Column::new(
        "fwd_iat_mean_ns",
        Unit::Nanoseconds,
        "Mean time between successive packets sent forward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| f.forward.gaps.mean()),
    ),
    Column::new(
        "fwd_iat_std_ns",
        Unit::Nanoseconds,
        "Sample standard deviation of the times between successive packets sent forward; null below three packets.",
        Value::F64(|f| f.forward.gaps.std()),
    ),
    Column::new(
        "bwd_iat_min_ns",
        Unit::Nanoseconds,
        "Shortest time between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::U64(|f| f.backward.gaps.min()),
    ),
    Column::new(
        "bwd_iat_max_ns",
        Unit::Nanoseconds,
        "Longest time between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::U64(|f| f.backward.gaps.max()),
    ),
    Column::new(
        "bwd_iat_mean_ns",
        Unit::Nanoseconds,
        "Mean time between successive packets sent backward, 0 where the clock went back; null below two packets.",
        Value::F64(|f| f.backward.gaps.mean()),
    ),
    Column::new(
        "bwd_iat_std_ns",
        Unit::Nanoseconds,
        "Sample standard deviation of the times between successive packets sent backward; null below three packets.",
        Value::F64(|f| f.backward.gaps.std()),
    ),
    Column::new(
        "fwd_duration_ns",
        Unit::Nanoseconds,
        "From the first packet sent forward to the latest; null without packets.",
        Value::U64(|f| of(&f.forward, Direction::duration_ns)),
    ),
    Column::new(
        "bwd_duration_ns",
        Unit::Nanoseconds,
        "From the first packet sent backward to the latest; null without packets.",
        Value::U64(|f| of(&f.backward, Direction::duration_ns)),
    ),
    Column::new(
        "bytes_per_s",
        Unit::BytesPerSecond,
        "Bytes of whole frames by duration; null when that is zero.",
        Value::F64(|f| per_second(f.wire().sum, f.duration_ns())),
    ),
    Column::new(
        "packets_per_s",
        Unit::PacketsPerSecond,
        "Packets by duration; null when that is zero.",
        Value::F64(|f| per_second(f.packets(), f.duration_ns())),
    ),
];
