//! External programs that ship as arms: a file in experiments/arms for each.

use control::config::{Document, Error};

use crate::arms::ProgramArm;
use crate::bench::Job;

// `SHIPPED_ARMS`: job, name and text of each file in experiments/arms.
include!(concat!(env!("OUT_DIR"), "/shipped_arms.rs"));

/// The names of the programs that ship as arms of a job.
pub(crate) fn names(job: &str) -> impl Iterator<Item = &'static str> {
    let of_job = SHIPPED_ARMS.iter().filter(move |arm| arm.0 == job);
    of_job.map(|arm| arm.1)
}

/// The program of this name that ships as an arm of the job.
///
/// # Errors
/// Its file makes no sense.
pub(crate) fn find(job: &Job, name: &str) -> Option<Result<ProgramArm, Error>> {
    let mut arms = SHIPPED_ARMS.iter();
    let (_, _, text) = arms.find(|arm| arm.0 == job.name && arm.1 == name)?;
    let document = Document::new(format!("experiments/arms/{}/{name}.toml", job.name), *text);
    let arms = (job.arms)();
    Some(ProgramArm::read(
        &document,
        Some(name),
        &job.program_rules(&arms),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::JOBS;

    #[test]
    fn every_shipped_arm_makes_sense() {
        for (job, name, _) in SHIPPED_ARMS {
            let of_job = JOBS.iter().find(|known| known.name == *job);
            let of_job = of_job.unwrap_or_else(|| panic!("experiments/arms/{job}: no such job"));
            let arm = find(of_job, name).unwrap().unwrap();
            assert_eq!(arm.name, *name);
        }
    }
}
