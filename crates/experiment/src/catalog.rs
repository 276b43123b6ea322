//! Finds experiments: those that ship, and files of the user's own.

use std::path::Path;

use anyhow::{Context, Result, bail};
use control::config::{Document, Error};

use crate::bench::{Bench, Job, Requirements};
use crate::environment::NATIVE;
use crate::file;
use crate::jobs::JOBS;
use crate::plan::Plan;
use crate::requirements::EnvironmentRequirements;

// `SHIPPED`: the text of each file in experiments/, by name.
include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Every experiment that ships, job by job.
pub fn shipped() -> Result<Vec<Plan>> {
    let parse = |text: &&str| Ok(parse(&Document::new("experiment", *text))?);
    let mut plans: Vec<Plan> = SHIPPED.iter().map(parse).collect::<Result<_>>()?;
    plans.sort_by_key(|plan| JOBS.iter().position(|job| job.name == plan.job));
    Ok(plans)
}

/// An experiment by name, or from a TOML file.
pub fn find(name: &str) -> Result<Plan> {
    if Path::new(name).extension().is_some_and(|ext| ext == "toml") {
        return Ok(parse(&Document::read(name)?)?);
    }
    let shipped = shipped()?;
    let names: Vec<_> = shipped.iter().map(|plan| plan.name.clone()).collect();
    shipped
        .into_iter()
        .find(|plan| plan.name == name)
        .with_context(|| {
            format!(
                "no experiment is called {name:?}; there are: {}, and your own files (NAME.toml)",
                names.join(", ")
            )
        })
}

/// An experiment as a file states it.
///
/// # Errors
/// With the line of what is not TOML, not known, or makes no sense.
pub fn parse(document: &Document) -> Result<Plan, Error> {
    file::read(document, &JOBS)
}

/// The job of this name.
pub(crate) fn job(name: &str) -> Option<&'static Job> {
    JOBS.iter().find(|job| job.name == name)
}

/// The requirements of a plan.
pub(crate) fn requirements(plan: &Plan) -> Result<Box<dyn Requirements>> {
    let job = job_of(plan)?;
    let requirements = (job.requirements)(plan)?;
    match plan.environment.as_str() {
        NATIVE => Ok(requirements),
        other => Ok(Box::new(EnvironmentRequirements::new(
            job.name,
            requirements,
            other,
        )?)),
    }
}

/// The bench of a plan's job.
pub(crate) fn bench(plan: &Plan) -> Result<Box<dyn Bench>> {
    (job_of(plan)?.bench)(plan)
}

fn job_of(plan: &Plan) -> Result<&'static Job> {
    match job(&plan.job) {
        Some(job) => Ok(job),
        None => bail!("{}: no job is called {:?}", plan.name, plan.job),
    }
}

/// The loads of an experiment that ships.
#[cfg(test)]
pub(crate) fn loads_of<L: crate::load::JobLoad>(name: &str) -> Vec<L> {
    let plan = find(name).expect("it ships");
    let loads = plan.loads.iter();
    let loads = loads.map(|load| load.of_job::<L>().expect("a load of this job").0);
    loads.cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::load::time_word;

    /// The plan in words, as in its file, its record and `--list`.
    fn text(plan: &Plan) -> String {
        let mut text = format!(
            "{} ({}): {}\narms: {}\nbaseline: {}\nin: {}\nblocks: {} in {:.1} s, quick in {:.1} s\nidle: {:?}\nprimary: {}\n",
            plan.name,
            plan.job,
            plan.about,
            plan.arms.join(" "),
            plan.baseline,
            plan.environment,
            plan.blocks,
            plan.seconds(),
            plan.quick_seconds(),
            plan.idle,
            plan.primary.join(" "),
        );
        for load in &plan.loads {
            let measure = load.measure();
            writeln!(
                text,
                "load: {}: {measure} for {}",
                load.label(),
                time_word(load.duration())
            )
            .unwrap();
        }
        let questions = serde_json::to_string_pretty(&plan.questions).unwrap();
        writeln!(
            text,
            "{:?}\norigin: {:#?}\n{questions}",
            plan.quick, plan.origin
        )
        .unwrap();
        text
    }

    #[test]
    fn shipped_plans_equal_their_snapshots() {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let _settings = settings.bind_to_scope();
        for plan in shipped().unwrap() {
            insta::assert_snapshot!(plan.name.clone(), text(&plan));
        }
    }
}
