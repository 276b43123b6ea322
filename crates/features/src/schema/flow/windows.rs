//! Windows.

use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::directions;

pub(super) const COLUMNS: &[Column<Flow>] = directions!(|sent| [
    ("first_window", Bytes, "Window of the first TCP header sent " _ ", not scaled; null without one.", U16(sent.windows.map(|windows| windows.first))),
    ("last_window", Bytes, "Window of the last TCP header sent " _ ", not scaled; null without one.", U16(sent.windows.map(|windows| windows.last))),
    ("window_scale", None, "Shift of the window scale option in the SYN sent " _ "; null without one.", U8(sent.windows.and_then(|windows| windows.scale))),
]);
