//! Plans, blocks of trials and records.
//!
//! It decides which trial runs when, and what is written down; what a trial is belongs to
//! the benches in [`jobs`], and what the numbers mean to `stats` and `report`.

mod account;
mod arm_options;
mod arms;
mod bench;
mod build;
pub mod catalog;
mod cpus;
mod environment;
mod file;
mod host;
mod idle;
pub mod jobs;
mod load;
mod lock;
mod machine;
pub mod metrics;
mod neighbour;
mod noise;
mod outcome;
mod placement;
pub mod plan;
mod presentation;
mod program;
mod record;
mod requirements;
mod run;
mod schedule;
mod search;
pub mod selftest;
mod shipped_arms;
mod survey;

use datapath::{Classify, ErrorClass};

pub use arm_options::{check_builds, with_arms};
pub use arms::tear_down_programs;
pub use host::RemoteHost;
pub use idle::IdlePolicy;
pub use load::Load;
pub use presentation::complete_presentation;
pub use record::{timestamp, unfinished};
pub use run::{ATTEMPTS, End, Options, Watch, run};
pub use survey::Survey;

/// This machine cannot run what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotRun(pub String);

impl Classify for CannotRun {
    fn class(&self) -> ErrorClass {
        ErrorClass::Missing
    }
}

/// Arguments, files or a record that no retry can make work.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

impl Classify for BadInput {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

/// The class of an error of an experiment: that of [`CannotRun`] or [`BadInput`] if it is one, with or without
/// context, and otherwise [`ErrorClass::Failed`].
pub fn class(error: &anyhow::Error) -> ErrorClass {
    let missing = error.downcast_ref().map(CannotRun::class);
    let input = || error.downcast_ref().map(BadInput::class);
    missing.or_else(input).unwrap_or(ErrorClass::Failed)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn class_survives_context() {
        let classes = [
            (CannotRun("no KVM".to_owned()).into(), ErrorClass::Missing),
            (BadInput("no arms".to_owned()).into(), ErrorClass::Input),
            (anyhow!("a trial failed"), ErrorClass::Failed),
        ];
        for (error, class) in classes {
            assert_eq!(super::class(&error), class, "{error}");
            let error = Err::<(), _>(error).context("block 3").unwrap_err();
            assert_eq!(super::class(&error), class, "{error:#}");
        }
    }
}
