//! The agent inside a virtual machine or an engine's container: its first program, which puts files there and
//! starts programs there.

pub(crate) mod binary;
mod channel;
pub(crate) mod client;
pub(crate) mod notify;
pub(crate) mod program;
