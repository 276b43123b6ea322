//! What the tests share. There are two rigs of a sender, a relay and receivers: one asks a datapath
//! by plans, the other runs a whole relay, for which a stream is described as users do.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test that cannot set up has failed, and its numbers are small"
)]
#![allow(
    unreachable_pub,
    reason = "a module of tests is reached by nobody else"
)]

pub mod frame;
pub mod plan_rig;
pub mod relay_rig;
pub mod space;
pub mod traffic;
