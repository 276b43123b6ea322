//! What was odd about the packets.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "out_of_order",
        Unit::Packets,
        "Packets older than the latest before them.",
        Value::U64(|f| Some(f.out_of_order)),
    ),
    Column::new(
        "truncated_packets",
        Unit::Packets,
        "Packets of which the capture holds less than was on the wire.",
        Value::U64(|f| Some(f.truncated)),
    ),
    Column::new(
        "malformed_packets",
        Unit::Packets,
        "Packets with a header that contradicts itself or what surrounds it.",
        Value::U64(|f| Some(f.malformed)),
    ),
    Column::new(
        "aggregated_packets",
        Unit::Packets,
        "Packets that stand for several on the wire.",
        Value::U64(|f| Some(f.aggregated)),
    ),
    Column::new(
        "fragments",
        Unit::Packets,
        "Fragments, first ones included.",
        Value::U64(|f| Some(f.fragments)),
    ),
    Column::new(
        "fwd_headless_packets",
        Unit::Packets,
        "Packets without a whole transport header (later fragments, cut off, impossible) sent forward; they are among the packets.",
        Value::U64(|f| Some(f.headless[0].count)),
    ),
    Column::new(
        "fwd_headless_bytes",
        Unit::Bytes,
        "Bytes of their frames, sent forward; they are among the bytes.",
        Value::U64(|f| Some(f.headless[0].sum)),
    ),
    Column::new(
        "bwd_headless_packets",
        Unit::Packets,
        "Packets without a whole transport header (later fragments, cut off, impossible) sent backward; they are among the packets.",
        Value::U64(|f| Some(f.headless[1].count)),
    ),
    Column::new(
        "bwd_headless_bytes",
        Unit::Bytes,
        "Bytes of their frames, sent backward; they are among the bytes.",
        Value::U64(|f| Some(f.headless[1].sum)),
    ),
];
