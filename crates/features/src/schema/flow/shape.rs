//! Periods, subflows, bulks, and the first packets one by one.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "active_count",
        Unit::Count,
        "How often there was an active period: packets without a gap longer than the active gap, the last period included.",
        Value::U64(|f| Some(f.periods.active().count)),
    ),
    Column::new(
        "active_min_ns",
        Unit::Nanoseconds,
        "Shortest duration of an active period: packets without a gap longer than the active gap, the last period included; null without one.",
        Value::U64(|f| f.periods.active().min()),
    ),
    Column::new(
        "active_max_ns",
        Unit::Nanoseconds,
        "Longest duration of an active period: packets without a gap longer than the active gap, the last period included; null without one.",
        Value::U64(|f| f.periods.active().max()),
    ),
    Column::new(
        "active_mean_ns",
        Unit::Nanoseconds,
        "Mean duration of an active period: packets without a gap longer than the active gap, the last period included; null without one.",
        Value::F64(|f| f.periods.active().mean()),
    ),
    Column::new(
        "active_std_ns",
        Unit::Nanoseconds,
        "Sample standard deviation of the duration of an active period: packets without a gap longer than the active gap, the last period included; null without two.",
        Value::F64(|f| f.periods.active().std()),
    ),
    shared::IDLE_COUNT,
    Column::new(
        "idle_min_ns",
        Unit::Nanoseconds,
        "Shortest duration of a gap longer than the active gap; null without one.",
        Value::U64(|f| f.periods.idle().min()),
    ),
    Column::new(
        "idle_max_ns",
        Unit::Nanoseconds,
        "Longest duration of a gap longer than the active gap; null without one.",
        Value::U64(|f| f.periods.idle().max()),
    ),
    Column::new(
        "idle_mean_ns",
        Unit::Nanoseconds,
        "Mean duration of a gap longer than the active gap; null without one.",
        Value::F64(|f| f.periods.idle().mean()),
    ),
    Column::new(
        "idle_std_ns",
        Unit::Nanoseconds,
        "Sample standard deviation of the duration of a gap longer than the active gap; null without two.",
        Value::F64(|f| f.periods.idle().std()),
    ),
    Column::new(
        "subflows",
        Unit::Count,
        "Parts of the flow that a gap longer than the subflow gap separates; at least 1.",
        Value::U64(|f| Some(f.periods.subflow_gaps + 1)),
    ),
    shared::FWD_BULKS,
    shared::FWD_BULK_PACKETS,
    Column::new(
        "fwd_bulk_bytes",
        Unit::Bytes,
        "Payload in bulks sent forward.",
        Value::U64(|f| Some(f.forward.bulks.bytes)),
    ),
    Column::new(
        "fwd_bulk_duration_ns",
        Unit::Nanoseconds,
        "Time that bulks sent forward took.",
        Value::U64(|f| Some(f.forward.bulks.duration_ns)),
    ),
    shared::BWD_BULKS,
    shared::BWD_BULK_PACKETS,
    Column::new(
        "bwd_bulk_bytes",
        Unit::Bytes,
        "Payload in bulks sent backward.",
        Value::U64(|f| Some(f.backward.bulks.bytes)),
    ),
    Column::new(
        "bwd_bulk_duration_ns",
        Unit::Nanoseconds,
        "Time that bulks sent backward took.",
        Value::U64(|f| Some(f.backward.bulks.duration_ns)),
    ),
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
];
