//! Which flow it is.

use std::fmt::{self, Write};

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::key::Sender;
use crate::text::ip;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "Flow ID",
        Unit::None,
        "Both addresses, both ports and the protocol: the same for both directions.",
        Value::Text(|f, out| write_id(f, out).is_ok()),
    ),
    Column::new(
        "Src IP",
        Unit::None,
        "Address of the side that sent the first packet; of the other side if that packet was a SYN with ACK.",
        Value::Text(|f, out| ip(f.source().ip(f.key.version), out)),
    ),
    Column::new(
        "Src Port",
        Unit::None,
        "Its port; of echoes (ICMP), their identifier if this side asks; 0 where the protocol has none.",
        Value::U16(|f| Some(f.source().port)),
    ),
    Column::new(
        "Dst IP",
        Unit::None,
        "Address of the other side.",
        Value::Text(|f, out| ip(f.destination().ip(f.key.version), out)),
    ),
    Column::new(
        "Dst Port",
        Unit::None,
        "Its port, likewise.",
        Value::U16(|f| Some(f.destination().port)),
    ),
    Column::new(
        "Protocol",
        Unit::None,
        "IP protocol number, after extension headers.",
        Value::U8(|f| Some(f.key.protocol)),
    ),
    Column::new(
        "Timestamp",
        Unit::Nanoseconds,
        "Time of the first packet.",
        Value::Time(|f| Some(f.first_ns)),
    ),
];

/// Addresses, ports and protocol, the endpoint that comes first in order first.
fn write_id(flow: &Flow, out: &mut dyn Write) -> fmt::Result {
    let key = &flow.key;
    let [first, second] = [Sender::First, Sender::Second].map(|sender| key.endpoint(sender));
    write!(
        out,
        "{}-{}-{}-{}-{}",
        first.ip(key.version),
        second.ip(key.version),
        first.port,
        second.port,
        key.protocol
    )
}
