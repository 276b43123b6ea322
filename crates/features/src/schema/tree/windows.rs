//! Windows.

use crate::column::Column;
use crate::flow::{Flow, Windows};
use crate::schema::columns::directions;

pub(super) const COLUMNS: &[Column<Flow>] = directions!(|sent| [
    ("first_window", Bytes, "Window of the first TCP header sent " _ ", not scaled.", U64(Some(window(sent.windows, |w| w.first)))),
    ("last_window", Bytes, "Window of the last TCP header sent " _ ", not scaled.", U64(Some(window(sent.windows, |w| w.last)))),
]);

fn window(windows: Option<Windows>, of: fn(Windows) -> u16) -> u64 {
    windows.map_or(0, of).into()
}
