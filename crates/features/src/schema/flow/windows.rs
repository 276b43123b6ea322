//! Windows.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "fwd_first_window",
        Unit::Bytes,
        "Window of the first TCP header sent forward, not scaled; null without one.",
        Value::U16(|f| f.forward.windows.map(|windows| windows.first)),
    ),
    Column::new(
        "fwd_last_window",
        Unit::Bytes,
        "Window of the last TCP header sent forward, not scaled; null without one.",
        Value::U16(|f| f.forward.windows.map(|windows| windows.last)),
    ),
    Column::new(
        "fwd_window_scale",
        Unit::None,
        "Shift of the window scale option in the SYN sent forward; null without one.",
        Value::U8(|f| f.forward.windows.and_then(|windows| windows.scale)),
    ),
    Column::new(
        "bwd_first_window",
        Unit::Bytes,
        "Window of the first TCP header sent backward, not scaled; null without one.",
        Value::U16(|f| f.backward.windows.map(|windows| windows.first)),
    ),
    Column::new(
        "bwd_last_window",
        Unit::Bytes,
        "Window of the last TCP header sent backward, not scaled; null without one.",
        Value::U16(|f| f.backward.windows.map(|windows| windows.last)),
    ),
    Column::new(
        "bwd_window_scale",
        Unit::None,
        "Shift of the window scale option in the SYN sent backward; null without one.",
        Value::U8(|f| f.backward.windows.and_then(|windows| windows.scale)),
    ),
];
