//! How long its parts are, and what is wrong with it.

use crate::column::{Column, Unit, Value};
use crate::packets::Facts;

pub(super) const COLUMNS: &[Column<Facts>] = &[
    Column::new(
        "wire_len",
        Unit::Bytes,
        "The frame's length on the wire, without its check sequence.",
        Value::U32(|p| Some(p.packet.wire_length)),
    ),
    Column::new(
        "ip_len",
        Unit::Bytes,
        "From the IP header's first byte to the packet's last, as the header declares.",
        Value::U32(|p| Some(p.packet.ip_length)),
    ),
    Column::new(
        "ip_hdr_len",
        Unit::Bytes,
        "The IP header with its options and extension headers.",
        Value::U32(|p| Some(p.packet.ip_header)),
    ),
    Column::new(
        "l4_hdr_len",
        Unit::Bytes,
        "The transport header; 0 where there is none, or it is not read.",
        Value::U32(|p| Some(p.packet.l4_header)),
    ),
    Column::new(
        "payload_len",
        Unit::Bytes,
        "What is left of ip_len.",
        Value::U32(|p| Some(p.packet.payload_length)),
    ),
    Column::new(
        "payload_entropy",
        Unit::BitsPerByte,
        "Shannon entropy of the payload's bytes that were captured; null without any.",
        Value::F64(|p: &Facts| p.entropy),
    )
    .from_payload(),
    Column::new(
        "truncated",
        Unit::None,
        "Whether the capture holds less of it than was on the wire.",
        Value::Bool(|p| Some(p.packet.truncated)),
    ),
    Column::new(
        "malformed",
        Unit::None,
        "Whether a header contradicts itself, or what surrounds it.",
        Value::Bool(|p| Some(p.packet.malformed)),
    ),
    Column::new(
        "headless",
        Unit::None,
        "Whether its transport header is not whole: later fragments, and where it is cut off or impossible.",
        Value::Bool(|p| Some(p.packet.headless)),
    ),
    Column::new(
        "aggregated",
        Unit::None,
        "Whether it stands for several packets of the wire: its IP length is zero.",
        Value::Bool(|p| Some(p.packet.aggregated)),
    ),
];
