//! One stream in, many receivers out.

pub mod counters;
pub mod plan;
