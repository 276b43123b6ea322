//! How packets follow each other.

use super::mean_ns;
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    shared::DURATION_NS,
    Column::new(
        "iat_min_ns",
        Unit::Nanoseconds,
        "Shortest time between successive packets of either direction.",
        Value::U64(|f| Some(f.gaps.min)),
    ),
    Column::new(
        "iat_max_ns",
        Unit::Nanoseconds,
        "Longest time between successive packets of either direction.",
        Value::U64(|f| Some(f.gaps.max)),
    ),
    Column::new(
        "iat_mean_ns",
        Unit::Nanoseconds,
        "Mean time between successive packets of either direction, rounded down.",
        Value::U64(|f| Some(mean_ns(&f.gaps))),
    ),
    Column::new(
        "fwd_iat_min_ns",
        Unit::Nanoseconds,
        "Shortest time between successive packets sent forward.",
        Value::U64(|f| Some(f.forward.gaps.min)),
    ),
    Column::new(
        "fwd_iat_max_ns",
        Unit::Nanoseconds,
        "Longest time between successive packets sent forward.",
        Value::U64(|f| Some(f.forward.gaps.max)),
    ),
    Column::new(
        "fwd_iat_mean_ns",
        Unit::Nanoseconds,
        "Mean time between successive packets sent forward, rounded down.",
        Value::U64(|f| Some(mean_ns(&f.forward.gaps))),
    ),
    Column::new(
        "fwd_duration_ns",
        Unit::Nanoseconds,
        "From the first packet sent forward to the latest.",
        Value::U64(|f| Some(f.forward.duration_ns())),
    ),
    Column::new(
        "bwd_iat_min_ns",
        Unit::Nanoseconds,
        "Shortest time between successive packets sent backward.",
        Value::U64(|f| Some(f.backward.gaps.min)),
    ),
    Column::new(
        "bwd_iat_max_ns",
        Unit::Nanoseconds,
        "Longest time between successive packets sent backward.",
        Value::U64(|f| Some(f.backward.gaps.max)),
    ),
    Column::new(
        "bwd_iat_mean_ns",
        Unit::Nanoseconds,
        "Mean time between successive packets sent backward, rounded down.",
        Value::U64(|f| Some(mean_ns(&f.backward.gaps))),
    ),
    Column::new(
        "bwd_duration_ns",
        Unit::Nanoseconds,
        "From the first packet sent backward to the latest.",
        Value::U64(|f| Some(f.backward.duration_ns())),
    ),
    shared::IDLE_COUNT,
    Column::new(
        "subflow_gaps",
        Unit::Count,
        "How often there was a gap longer than the subflow gap.",
        Value::U64(|f| Some(f.periods.subflow_gaps)),
    ),
    shared::OUT_OF_ORDER,
];
