//! `flow.v1`: everything that is known of a flow, a row for each.

mod contents;
mod identity;
mod lengths;
mod remarks;
mod shape;
mod timing;
mod volume;
mod windows;

use std::fmt::Write;

use super::{Rows, Rules, Schema, flags};
use crate::column::Column;
use crate::flow::{Direction, Flow};
use crate::text;

pub(super) const SCHEMA: Schema = Schema {
    name: "flow.v1",
    about: "everything known of a flow, the superset",
    rules: Rules::Own,
    rows: Rows::Flows(&[
        identity::COLUMNS,
        volume::COLUMNS,
        lengths::COLUMNS,
        timing::COLUMNS,
        flags::COLUMNS,
        windows::COLUMNS,
        shape::COLUMNS,
        contents::COLUMNS,
        remarks::COLUMNS,
    ]),
};

/// Of every schema whose flows are to be found in the rows of this one.
pub(super) const IDENTITY: &[Column<Flow>] = identity::COLUMNS;

/// A value of a direction that has sent something.
pub(super) fn of<T>(direction: &Direction, value: fn(&Direction) -> T) -> Option<T> {
    (direction.packets() > 0).then(|| value(direction))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates are given in double precision"
)]
pub(super) fn per_second(amount: u64, duration_ns: u64) -> Option<f64> {
    (duration_ns > 0).then(|| amount as f64 * 1e9 / duration_ns as f64)
}

/// A hardware address; null where the link has none.
pub(in crate::schema) fn mac(address: [u8; 6], out: &mut dyn Write) -> bool {
    address != [0; 6] && text::mac(address, out)
}
