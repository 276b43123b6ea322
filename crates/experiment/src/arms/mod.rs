//! Arms that the experiment's job does not have: other builds of `lowroad`, and programs of the user's own.

mod build;
mod process;
mod program;
mod teardown;
mod template;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use self::build::BuildArm;
pub(crate) use self::process::{Place, ProgramProcess};
pub(crate) use self::program::{
    FOLDER, HERE, Placeholder, ProgramArm, ProgramRules, ProgramSection, ProgramTerms, check_name,
};
pub use self::teardown::tear_down_programs;
pub(crate) use self::template::Values;

/// An arm that is not the job's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CustomArm {
    Build(BuildArm),
    Program(ProgramArm),
}
