//! `tree.v1`: integers that userspace and the kernel have alike, for models that run in both.
//!
//! Nothing is null: where there is no value, there is 0. So a model needs no rule for what is missing,
//! and a tree in the kernel reads a flow's record as it lies there.

mod lengths;
mod timing;
mod volume;
mod windows;

use super::{Rows, Rules, Schema, flags};
use crate::column::{Column, Unit, Value};
use crate::flow::{Flow, Lengths, Times};

pub(super) const SCHEMA: Schema = Schema {
    name: "tree.v1",
    about: "integers that the kernel has as well, for models that run there; 0 where there is no value",
    rules: Rules::Own,
    rows: Rows::Flows(&[
        IDENTITY,
        volume::COLUMNS,
        lengths::COLUMNS,
        timing::COLUMNS,
        flags::COLUMNS,
        windows::COLUMNS,
    ]),
};

const IDENTITY: &[Column<Flow>] = &[
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

/// With 8 binary digits behind the point.
fn mean_q8(lengths: &Lengths) -> u64 {
    let sum = lengths.sum.saturating_mul(256);
    sum.checked_div(lengths.count).unwrap_or(0)
}

fn mean_ns(times: &Times) -> u64 {
    times.sum.checked_div(times.count).unwrap_or(0)
}
