//! Which flow it is. A model has no use for these but for the protocol and the ports; whoever reads its answers does.

use crate::column::{Column, Unit, Value};
use crate::flow::Flow;
use crate::text::ip;

pub(super) const COLUMNS: &[Column<Flow>] = &[
    Column::new(
        "flow_id",
        Unit::None,
        "Same as flow_id of flow.v1.",
        Value::U64(|f| Some(f.id())),
    ),
    Column::new(
        "end_reason",
        Unit::None,
        "Why the row was exported: idle, active, closed, stopped, full or early.",
        Value::Text(|f, out| out.write_str(f.end.name()).is_ok()),
    ),
    Column::new(
        "src_ip",
        Unit::None,
        "Address of the endpoint that sends forward.",
        Value::Text(|f, out| ip(f.source().ip(f.key.version), out)),
    ),
    Column::new(
        "dst_ip",
        Unit::None,
        "Address of the endpoint that sends backward.",
        Value::Text(|f, out| ip(f.destination().ip(f.key.version), out)),
    ),
    Column::new(
        "first_seen",
        Unit::Nanoseconds,
        "Time of the first packet.",
        Value::Time(|f| Some(f.first_ns)),
    ),
    Column::new(
        "last_seen",
        Unit::Nanoseconds,
        "Latest time of any packet.",
        Value::Time(|f| Some(f.last_ns)),
    ),
    Column::new(
        "ip_version",
        Unit::None,
        "4 or 6.",
        Value::U64(|f| Some(f.key.version.into())),
    ),
    Column::new(
        "protocol",
        Unit::None,
        "Protocol number of the transport.",
        Value::U64(|f| Some(f.key.protocol.into())),
    ),
    Column::new(
        "src_port",
        Unit::None,
        "Port of the endpoint that sends forward; of echoes (ICMP), their identifier if this endpoint asks; 0 where there are no ports.",
        Value::U64(|f| Some(f.source().port.into())),
    ),
    Column::new(
        "dst_port",
        Unit::None,
        "Port of the endpoint that sends backward, likewise.",
        Value::U64(|f| Some(f.destination().port.into())),
    ),
];
