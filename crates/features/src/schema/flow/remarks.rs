//! The anomalies of a flow's packets.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::schema::shared;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    shared::OUT_OF_ORDER,
    Column::new(
        "truncated_packets",
        Unit::Packets,
        "Packets of which the capture holds less than was on the wire.",
        Value::U64(|f| Some(f.remarks().truncated)),
    ),
    Column::new(
        "malformed_packets",
        Unit::Packets,
        "Packets with a header that contradicts itself or what surrounds it.",
        Value::U64(|f| Some(f.remarks().malformed)),
    ),
    Column::new(
        "aggregated_packets",
        Unit::Packets,
        "Packets that stand for several on the wire.",
        Value::U64(|f| Some(f.remarks().aggregated)),
    ),
    Column::new(
        "fragments",
        Unit::Packets,
        "Fragments, first ones included.",
        Value::U64(|f| Some(f.remarks().fragments)),
    ),
    Column::new(
        "fwd_headless_packets",
        Unit::Packets,
        "Packets without a whole transport header (later fragments, cut off, impossible) sent forward; they are among the packets.",
        Value::U64(|f| Some(f.remarks().headless[0].count)),
    ),
    Column::new(
        "fwd_headless_bytes",
        Unit::Bytes,
        "Bytes of their frames, sent forward; they are among the bytes.",
        Value::U64(|f| Some(f.remarks().headless[0].sum)),
    ),
    Column::new(
        "bwd_headless_packets",
        Unit::Packets,
        "Packets without a whole transport header (later fragments, cut off, impossible) sent backward; they are among the packets.",
        Value::U64(|f| Some(f.remarks().headless[1].count)),
    ),
    Column::new(
        "bwd_headless_bytes",
        Unit::Bytes,
        "Bytes of their frames, sent backward; they are among the bytes.",
        Value::U64(|f| Some(f.remarks().headless[1].sum)),
    ),
];
