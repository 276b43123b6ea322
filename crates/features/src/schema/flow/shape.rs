//! Periods, subflows, bulks, and the first packets one by one.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::columns::{columns, cross};
use crate::schema::shared;

/// The statistics of the durations of periods.
macro_rules! durations {
    ($prefix:literal, $period:literal, |$flow:ident| $periods:expr) => {
        cross!(|$flow| [($prefix, $period, $periods)], |periods| [
            ("min_ns", Nanoseconds, "Shortest duration of " _ "; null without one.", U64(periods.min())),
            ("max_ns", Nanoseconds, "Longest duration of " _ "; null without one.", U64(periods.max())),
            ("mean_ns", Nanoseconds, "Mean duration of " _ "; null without one.", F64(periods.mean())),
            ("std_ns", Nanoseconds, "Sample standard deviation of the duration of " _ "; null without two.", F64(periods.std())),
        ])
    };
}

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    &[Column::new(
        "active_count",
        Unit::Count,
        "How often there was an active period: packets without a gap longer than the active gap, the last period included.",
        Value::U64(|f| Some(f.periods.active().count)),
    )],
    durations!(
        "active_",
        "an active period: packets without a gap longer than the active gap, the last period included",
        |f| f.periods.active()
    ),
    &[shared::IDLE_COUNT],
    durations!("idle_", "a gap longer than the active gap", |f| f
        .periods
        .idle()),
    &[Column::new(
        "subflows",
        Unit::Count,
        "Parts of the flow that a gap longer than the subflow gap separates; at least 1.",
        Value::U64(|f| Some(f.periods.subflow_gaps + 1)),
    )],
    shared::BULKS,
    &[
        Column::new(
            "splt_payload",
            Unit::Bytes,
            "Payload lengths of the first packets, backward ones negative; null beyond the last packet.",
            Value::I32List(|f, each| f.steps.iter().for_each(|step| each(step.payload))),
        ),
        Column::new(
            "splt_iat_ns",
            Unit::Nanoseconds,
            "Times since the packet before, of the first packets, 0 for the first; null beyond the last packet.",
            Value::U64List(|f, each| f.steps.iter().for_each(|step| each(step.gap_ns))),
        ),
    ],
];
