//! Averages, bulks, subflows, windows, active and idle periods.

use super::{max, mean, min, of, per_second, ratio, std};
use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "Down/Up Ratio",
        Unit::Ratio,
        "Packets sent backward by packets sent forward; null without the latter.",
        Value::F64(|f| ratio(f.backward.packets(), f.forward.packets())),
    ),
    Column::new(
        "Average Packet Size",
        Unit::Bytes,
        "Payload of both directions by packets: the same as Packet Length Mean.",
        Value::F64(|f| f.payload().mean()),
    ),
    Column::new(
        "Fwd Segment Size Avg",
        Unit::Bytes,
        "Payload sent forward by packets: the same as Fwd Packet Length Mean; null without packets.",
        Value::F64(|f| f.forward.payload.mean()),
    ),
    Column::new(
        "Bwd Segment Size Avg",
        Unit::Bytes,
        "Payload sent backward by packets: the same as Bwd Packet Length Mean; null without packets.",
        Value::F64(|f| f.backward.payload.mean()),
    ),
    Column::new(
        "Fwd Bytes/Bulk Avg",
        Unit::Bytes,
        "Payload in bulks sent forward, by bulks: at least 4 packets with payload, no gap longer than the bulk gap, no payload from the other side between; null without one.",
        Value::F64(|f| ratio(f.forward.bulks.bytes, f.forward.bulks.count)),
    ),
    Column::new(
        "Fwd Packet/Bulk Avg",
        Unit::Packets,
        "Packets in bulks sent forward, by bulks; null without one.",
        Value::F64(|f| ratio(f.forward.bulks.packets, f.forward.bulks.count)),
    ),
    Column::new(
        "Fwd Bulk Rate Avg",
        Unit::BytesPerSecond,
        "Payload in bulks sent forward, by the time that they took; null when that is zero.",
        Value::F64(|f| per_second(f.forward.bulks.bytes, f.forward.bulks.duration_ns)),
    ),
    Column::new(
        "Bwd Bytes/Bulk Avg",
        Unit::Bytes,
        "Payload in bulks sent backward, by bulks: at least 4 packets with payload, no gap longer than the bulk gap, no payload from the other side between; null without one.",
        Value::F64(|f| ratio(f.backward.bulks.bytes, f.backward.bulks.count)),
    ),
    Column::new(
        "Bwd Packet/Bulk Avg",
        Unit::Packets,
        "Packets in bulks sent backward, by bulks; null without one.",
        Value::F64(|f| ratio(f.backward.bulks.packets, f.backward.bulks.count)),
    ),
    Column::new(
        "Bwd Bulk Rate Avg",
        Unit::BytesPerSecond,
        "Payload in bulks sent backward, by the time that they took; null when that is zero.",
        Value::F64(|f| per_second(f.backward.bulks.bytes, f.backward.bulks.duration_ns)),
    ),
    Column::new(
        "Subflow Fwd Packets",
        Unit::Packets,
        "Packets sent forward, by subflows: parts that a gap longer than the subflow gap separates, at least 1.",
        Value::F64(|f| ratio(f.forward.packets(), subflows(f))),
    ),
    Column::new(
        "Subflow Fwd Bytes",
        Unit::Bytes,
        "Payload sent forward, by subflows.",
        Value::F64(|f| ratio(f.forward.payload.sum, subflows(f))),
    ),
    Column::new(
        "Subflow Bwd Packets",
        Unit::Packets,
        "Packets sent backward, by subflows: parts that a gap longer than the subflow gap separates, at least 1.",
        Value::F64(|f| ratio(f.backward.packets(), subflows(f))),
    ),
    Column::new(
        "Subflow Bwd Bytes",
        Unit::Bytes,
        "Payload sent backward, by subflows.",
        Value::F64(|f| ratio(f.backward.payload.sum, subflows(f))),
    ),
    Column::new(
        "FWD Init Win Bytes",
        Unit::Bytes,
        "Window of the first TCP header sent forward, not scaled; null without one.",
        Value::U16(|f| f.forward.windows.map(|windows| windows.first)),
    ),
    Column::new(
        "Bwd Init Win Bytes",
        Unit::Bytes,
        "Window of the first TCP header sent backward, not scaled; null without one.",
        Value::U16(|f| f.backward.windows.map(|windows| windows.first)),
    ),
    Column::new(
        "Fwd Act Data Pkts",
        Unit::Packets,
        "Packets with payload sent forward, the flow's first included.",
        Value::U64(|f| Some(f.forward.payload_packets)),
    ),
    Column::new(
        "Fwd Seg Size Min",
        Unit::Bytes,
        "Shortest transport header sent forward, whatever the name says; null without packets.",
        Value::U32(|f| of(&f.forward, |d| d.min_l4_header)),
    ),
    Column::new(
        "Active Mean",
        Unit::Microseconds,
        "Mean duration of active periods: packets without a gap longer than the active gap, the last period included.",
        Value::F64(|f| mean(&f.periods.active())),
    ),
    Column::new(
        "Active Std",
        Unit::Microseconds,
        "Sample standard deviation of the durations of active periods: packets without a gap longer than the active gap, the last period included; null below two.",
        Value::F64(|f| std(&f.periods.active())),
    ),
    Column::new(
        "Active Max",
        Unit::Microseconds,
        "Longest duration of active periods: packets without a gap longer than the active gap, the last period included.",
        Value::F64(|f| max(&f.periods.active())),
    ),
    Column::new(
        "Active Min",
        Unit::Microseconds,
        "Shortest duration of active periods: packets without a gap longer than the active gap, the last period included.",
        Value::F64(|f| min(&f.periods.active())),
    ),
    Column::new(
        "Idle Mean",
        Unit::Microseconds,
        "Mean of the gaps longer than the active gap; null without one.",
        Value::F64(|f| mean(&f.periods.idle())),
    ),
    Column::new(
        "Idle Std",
        Unit::Microseconds,
        "Sample standard deviation of the gaps longer than the active gap; null below two.",
        Value::F64(|f| std(&f.periods.idle())),
    ),
    Column::new(
        "Idle Max",
        Unit::Microseconds,
        "Longest of the gaps longer than the active gap; null without one.",
        Value::F64(|f| max(&f.periods.idle())),
    ),
    Column::new(
        "Idle Min",
        Unit::Microseconds,
        "Shortest of the gaps longer than the active gap; null without one.",
        Value::F64(|f| min(&f.periods.idle())),
    ),
    Column::new(
        "Label",
        Unit::None,
        "Null: labels are the user's to give.",
        Value::Text(|_, _| false),
    ),
];

fn subflows(flow: &Flow) -> u64 {
    flow.periods.subflow_gaps + 1
}
