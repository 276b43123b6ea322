//! Arms that the command line adds to a plan: `--arm NAME=PATH`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use control::config::Document;
use report::record::{Effect, Headline, Metric, Question};

use crate::arms::{BuildArm, CustomArm, ProgramArm, check_name};
use crate::bench::{BuildCheck, Job};
use crate::catalog;
use crate::plan::Plan;

/// Follows the path of a build, and names the job's arm that it runs.
const DATAPATH: &str = ",datapath=";

/// One `--arm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ArmOption<'a> {
    name: &'a str,
    path: &'a Path,
    datapath: Option<&'a str>,
}

impl<'a> ArmOption<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let (name, path) = text
            .split_once('=')
            .with_context(|| format!("--arm {text}: write NAME=PATH"))?;
        let (path, datapath) = match path.rsplit_once(DATAPATH) {
            Some((path, datapath)) => (path, Some(datapath)),
            None => (path, None),
        };
        ensure!(!path.is_empty(), "--arm {text}: the path is missing");
        Ok(Self {
            name,
            path: Path::new(path),
            datapath,
        })
    }

    /// Whether it names a file that states a program, and not a build.
    fn is_program(&self) -> bool {
        self.path.extension().is_some_and(|ext| ext == "toml")
    }
}

/// The plan with the arms of these `--arm NAME=PATH[,datapath=ARM]`. Builds of `lowroad` take the place of the plan's own
/// arms, and the first of them is the baseline; programs, whose path ends in `.toml`, join the arms that there are.
///
/// # Errors
/// What is wrong with one of them, and what to do.
pub fn with_arms(mut plan: Plan, options: &[String]) -> Result<Plan> {
    if options.is_empty() {
        return Ok(plan);
    }
    let job = catalog::job(&plan.job).with_context(|| format!("no job {}", plan.job))?;
    let options: Vec<ArmOption<'_>> = options
        .iter()
        .map(|text| ArmOption::parse(text))
        .collect::<Result<_>>()?;
    check_names(&plan, job, &options)?;
    let (programs, builds): (Vec<_>, Vec<_>) = options.into_iter().partition(ArmOption::is_program);
    if !builds.is_empty() {
        replace_arms(&mut plan, job, &builds)?;
    }
    for program in programs {
        add_program(&mut plan, job, &program)?;
    }
    ensure!(
        plan.arms.len() > 1,
        "--arm {}: one arm has nothing to compare with; name a second one, such as --arm new=target/release/lowroad",
        plan.arms.join(",")
    );
    Ok(plan)
}

fn check_names(plan: &Plan, job: &Job, options: &[ArmOption<'_>]) -> Result<()> {
    let arms = (job.arms)();
    let rules = job.program_rules(&arms);
    let mut names = BTreeSet::new();
    for option in options {
        check_name(option.name, &rules).map_err(|what| anyhow!("--arm: {what}"))?;
        ensure!(
            names.insert(option.name),
            "--arm: the name {:?} is used twice",
            option.name
        );
        ensure!(
            !plan.arms.iter().any(|arm| arm == option.name),
            "--arm: {} has an arm {:?} already: choose another name",
            plan.name,
            option.name
        );
    }
    Ok(())
}

/// Builds are compared with each other alone: what the experiment asks of its own arms is not about them.
fn replace_arms(plan: &mut Plan, job: &Job, builds: &[ArmOption<'_>]) -> Result<()> {
    let mut custom = std::collections::BTreeMap::new();
    for build in builds {
        let arm = build.datapath.unwrap_or(&plan.baseline);
        check_datapath(plan, job, build, arm)?;
        let opened = BuildArm::open(build.path, arm)
            .map_err(|what| anyhow!("--arm {}: {what}", build.name))?;
        custom.insert(build.name.to_owned(), CustomArm::Build(opened));
    }
    plan.custom = custom;
    plan.arms = builds.iter().map(|build| build.name.to_owned()).collect();
    plan.quick.arms.clone_from(&plan.arms);
    plan.baseline.clone_from(&plan.arms[0]);
    let mut metrics: Vec<String> = Vec::new();
    let asked = plan.questions.iter().flat_map(|question| &question.metrics);
    for metric in plan.primary.iter().chain(asked) {
        if !metrics.contains(metric) {
            metrics.push(metric.clone());
        }
    }
    let first = metrics.first().and_then(|name| crate::metrics::find(name));
    let headline = first.zip(plan.arms.get(1));
    plan.questions = vec![Question {
        text: format!("How do the builds differ from {}?", plan.baseline),
        headline: headline.map(|(metric, arm)| headline_of(&metric, arm, &plan.baseline)),
        metrics,
        ..Question::default()
    }];
    plan.origin.clear();
    Ok(())
}

/// How the first metric of a build stands against that of the baseline.
fn headline_of(metric: &Metric, arm: &str, baseline: &str) -> Headline {
    let name = &metric.name;
    Headline {
        arm: arm.to_owned(),
        text: match metric.effect {
            Effect::Ratio => {
                format!("The {name} of the build {arm} is {{ratio}} times that of {baseline}")
            }
            Effect::Difference => {
                format!(
                    "The {name} of the build {arm} and that of {baseline} are {{difference}} apart"
                )
            }
        },
    }
}

fn check_datapath(plan: &Plan, job: &Job, build: &ArmOption<'_>, arm: &str) -> Result<()> {
    let base = arm.split('+').next().unwrap_or_default();
    if (job.runs_lowroad)(base) && (base == arm || !(job.tunings)().is_empty()) {
        return Ok(());
    }
    let arms = (job.arms)();
    let runs: Vec<&str> = arms
        .into_iter()
        .filter(|arm| (job.runs_lowroad)(arm))
        .collect();
    let name = build.name;
    if runs.is_empty() {
        bail!("--arm {name}: no arm of {} starts lowroad", job.name);
    }
    let what = match build.datapath {
        Some(_) => format!("the arm {arm:?} of {} does not start lowroad", job.name),
        None => format!(
            "the baseline of {}, {arm:?}, does not start lowroad",
            plan.name
        ),
    };
    bail!(
        "--arm {name}: {what}; name one that does, such as {name}={}{DATAPATH}{}; there are: {}",
        build.path.display(),
        runs[0],
        runs.join(", ")
    )
}

fn add_program(plan: &mut Plan, job: &Job, option: &ArmOption<'_>) -> Result<()> {
    let document = Document::read(option.path)?;
    let arms = (job.arms)();
    let mut arm = ProgramArm::read(&document, Some(option.name), &job.program_rules(&arms))?;
    arm.file = Some(option.path.display().to_string());
    plan.add(CustomArm::Program(arm), option.name);
    let others = plan.arms.iter();
    let others = others.filter(|arm| *arm != option.name && **arm != plan.baseline);
    plan.questions.push(Question {
        text: format!("How does {} compare?", option.name),
        metrics: plan.primary.clone(),
        against: others.cloned().collect(),
        arms: vec![option.name.to_owned()],
        ..Question::default()
    });
    Ok(())
}

/// Whether every build in the plan can run what the plan asks of it, before anything runs.
///
/// # Errors
/// What a build lacks, and what to do.
pub fn check_builds(plan: &Plan) -> Result<()> {
    let builds = plan
        .arms
        .iter()
        .filter_map(|arm| match plan.custom.get(arm) {
            Some(CustomArm::Build(build)) => Some((arm, build)),
            _ => None,
        });
    let builds: Vec<_> = builds.collect();
    if builds.is_empty() {
        return Ok(());
    }
    let requirements = catalog::requirements(plan)?;
    let folder = tempfile::tempdir()?;
    for (name, build) in builds {
        let refuse = |what: String, load: Option<&str>| {
            let under = load.map_or_else(String::new, |load| format!(" under the load {load:?}"));
            anyhow!(
                "--arm {name}: {} ({}) does not run {} of {}{under}: {what}; name another build, or another datapath",
                build.identity.path,
                build.identity.version,
                build.arm,
                plan.job
            )
        };
        if let Ok(Some(datapath)) = requirements.datapath(name) {
            build
                .has_datapath(&plan.job, datapath)
                .map_err(|what| refuse(what, None))?;
        }
        for load in &plan.loads {
            if requirements.applies(name, load).is_err() {
                continue;
            }
            let check = BuildCheck {
                lowroad: &build.lowroad,
                arm: &build.arm,
                folder: folder.path(),
            };
            let checks = requirements.build_checks(&check, load);
            for arguments in checks.map_err(|what| refuse(format!("{what:#}"), None))? {
                build
                    .accepts(&arguments)
                    .map_err(|what| refuse(what, Some(&load.label())))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
