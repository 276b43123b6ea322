//! How packets follow each other.

use super::mean_ns;
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::columns::{columns, cross};
use crate::schema::shared;

/// The statistics of the gaps between packets.
macro_rules! gaps {
    ($prefix:literal, $packets:literal, |$flow:ident| $gaps:expr) => {
        cross!(|$flow| [($prefix, $packets, $gaps)], |gaps| [
            ("iat_min_ns", Nanoseconds, "Shortest time between successive packets " _ ".", U64(Some(gaps.min))),
            ("iat_max_ns", Nanoseconds, "Longest time between successive packets " _ ".", U64(Some(gaps.max))),
            ("iat_mean_ns", Nanoseconds, "Mean time between successive packets " _ ", rounded down.", U64(Some(mean_ns(gaps)))),
        ])
    };
}

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    &[shared::DURATION_NS],
    gaps!("", "of either direction", |flow| flow.gaps),
    gaps!("fwd_", "sent forward", |flow| flow.forward.gaps),
    &[Column::new(
        "fwd_duration_ns",
        Unit::Nanoseconds,
        "From the first packet sent forward to the latest.",
        Value::U64(|f| Some(f.forward.duration_ns())),
    )],
    gaps!("bwd_", "sent backward", |flow| flow.backward.gaps),
    &[
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
    ],
];
