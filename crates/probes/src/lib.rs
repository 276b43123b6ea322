//! Delay probes, CPU accountant and stack sampler: what a trial cost, seen from the kernel.
//!
//! It measures and counts; what is compared, and whether a difference is real, belongs to
//! `experiment` and `stats`.

pub mod account;
pub mod delay;
pub mod disturb;
mod error;
pub mod foreign;
pub mod programs;
pub mod ps;
mod raw;
pub mod receiver;
pub mod stacks;

pub use error::Error;
