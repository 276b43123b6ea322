//! The xdp data plane's program, run on frames that it is given.

#![allow(
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a test's numbers are small"
)]

mod cost;
mod ends;
mod frames;
mod rig;
mod routes;
mod rules;
