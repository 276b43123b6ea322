//! Plans, blocks of trials and records.
//!
//! It decides which trial runs when, and what is written down; what a trial is belongs to
//! [`jobs`], and what the numbers mean to `stats` and `report`.

mod idle;
pub mod jobs;
mod lock;
mod machine;
pub mod metrics;
pub mod plan;
mod record;
mod run;
mod schedule;
mod search;
pub mod selftest;
pub mod units;
mod wait;

pub use record::timestamp;
pub use run::{End, Options, Watch, run};

/// This machine cannot run what was asked (exit code 3).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotRun(pub String);
