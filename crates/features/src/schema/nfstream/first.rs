//! The first packets one by one.

use super::NS_PER_MS;
use crate::column::{Column, Unit, Value};
use crate::flow::{Flow, Step};
pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "splt_direction",
        Unit::None,
        "Directions of the first packets: 0 from src to dst, 1 from dst to src; null beyond the last packet.",
        Value::I32List(|f, each| steps(f, each, direction)),
    ),
    Column::new(
        "splt_ps",
        Unit::Bytes,
        "Lengths of the frames of the first packets on the wire; null beyond the last packet.",
        Value::I32List(|f, each| steps(f, each, |_, step| step.wire.abs())),
    ),
    Column::new(
        "splt_piat_ms",
        Unit::Milliseconds,
        "Times between the first packets and those before them, 0 for the first, rounded down; null beyond the last packet.",
        Value::U64List(|f, each| steps(f, each, |_, step| step.gap_ns / NS_PER_MS)),
    ),
];

fn steps<T>(flow: &Flow, each: &mut dyn FnMut(T), value: fn(&Flow, &Step) -> T) {
    for step in &flow.steps {
        each(value(flow, step));
    }
}

fn direction(flow: &Flow, step: &Step) -> i32 {
    let forward = step.wire > 0;
    i32::from(forward != (flow.opener == flow.initiator))
}
