//! `tree.v1`: integers that userspace and the kernel have alike, for models that run in both, and which flow
//! they are of.
//!
//! Nothing is null: where there is no value, there is 0. So a model needs no rule for what is missing,
//! and a tree in the kernel reads a flow's record as it lies there.

mod identity;
mod lengths;
mod timing;
mod volume;
mod windows;

use super::{Rows, Rules, Schema, flags};
use crate::flow::{Lengths, Times};

pub(super) const SCHEMA: Schema = Schema {
    name: "tree.v1",
    about: "integers that the kernel has as well, for models that run there, with the flow that they are of; 0 where there is no value",
    rules: Rules::Own,
    rows: Rows::Flows(&[
        identity::COLUMNS,
        volume::COLUMNS,
        lengths::COLUMNS,
        timing::COLUMNS,
        flags::COLUMNS,
        windows::COLUMNS,
    ]),
};

/// With 8 binary digits behind the point.
fn mean_q8(lengths: &Lengths) -> u64 {
    let sum = lengths.sum.saturating_mul(256);
    sum.checked_div(lengths.count).unwrap_or(0)
}

fn mean_ns(times: &Times) -> u64 {
    times.sum.checked_div(times.count).unwrap_or(0)
}
