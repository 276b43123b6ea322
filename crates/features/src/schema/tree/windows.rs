//! Windows.

use crate::column::{Column, Unit, Value};
use crate::flow::{Flow, Windows};

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "fwd_first_window",
        Unit::Bytes,
        "Window of the first TCP header sent forward, not scaled.",
        Value::U64(|f| Some(window(f.forward.windows, |w| w.first))),
    ),
    Column::new(
        "fwd_last_window",
        Unit::Bytes,
        "Window of the last TCP header sent forward, not scaled.",
        Value::U64(|f| Some(window(f.forward.windows, |w| w.last))),
    ),
    Column::new(
        "bwd_first_window",
        Unit::Bytes,
        "Window of the first TCP header sent backward, not scaled.",
        Value::U64(|f| Some(window(f.backward.windows, |w| w.first))),
    ),
    Column::new(
        "bwd_last_window",
        Unit::Bytes,
        "Window of the last TCP header sent backward, not scaled.",
        Value::U64(|f| Some(window(f.backward.windows, |w| w.last))),
    ),
];

fn window(windows: Option<Windows>, of: fn(Windows) -> u16) -> u64 {
    windows.map_or(0, of).into()
}
