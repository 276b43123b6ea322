//! `cic.v1`: the 84 columns of CICFlowMeter, in its order and spelling, with right values.
//!
//! What it calls the length of a packet is that of its payload, in every column. Its times are
//! microseconds; here they keep their nanoseconds, as a fraction. What is not known or not defined is
//! null, never zero or infinite.

mod headers;
mod identity;
mod shape;
mod timing;
mod volume;

use super::flow::{of, per_second};
use super::{Rows, Rules, Schema};
use crate::flow::Times;

pub(super) const SCHEMA: Schema = Schema {
    name: "cic.v1",
    about: "the 84 columns of CICFlowMeter, with right values",
    rules: Rules::Own,
    rows: Rows::Flows(&[
        identity::COLUMNS,
        volume::COLUMNS,
        timing::COLUMNS,
        headers::COLUMNS,
        shape::COLUMNS,
    ]),
};

fn mean(times: &Times) -> Option<f64> {
    times.mean().map(from_nanoseconds)
}

fn std(times: &Times) -> Option<f64> {
    times.std().map(from_nanoseconds)
}

fn max(times: &Times) -> Option<f64> {
    times.max().map(micros)
}

fn min(times: &Times) -> Option<f64> {
    times.min().map(micros)
}

fn total(times: &Times) -> Option<f64> {
    (times.count > 0).then(|| micros(times.sum))
}

pub(super) fn micros(nanoseconds: u64) -> f64 {
    from_nanoseconds(float(nanoseconds))
}

fn from_nanoseconds(time: f64) -> f64 {
    time / 1e3
}

fn ratio(amount: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| float(amount) / float(by))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "averages are given in double precision"
)]
fn float(value: u64) -> f64 {
    value as f64
}
