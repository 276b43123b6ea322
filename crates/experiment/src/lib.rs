//! Plans, blocks of trials and records.
//!
//! It decides which trial runs when, and what is written down; what a trial is belongs to
//! [`jobs`], and what the numbers mean to `stats` and `report`.

mod build;
mod cpus;
mod file;
mod idle;
pub mod jobs;
mod lock;
mod machine;
pub mod metrics;
mod neighbour;
pub mod plan;
mod record;
mod run;
mod schedule;
mod search;
pub mod selftest;
mod shipped;
mod survey;
pub mod units;
mod wait;

pub use record::{timestamp, unfinished};
pub use run::{ATTEMPTS, End, Options, Watch, run};
pub use survey::Survey;

/// This machine cannot run what was asked (exit code 3).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotRun(pub String);

/// Arguments, files or a record that no retry can make work (exit code 2).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);
