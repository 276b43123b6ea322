//! `lowroad compare`: runs one experiment and reports it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use ::report::command::{quote, resume};
use anyhow::{Context, Result};
use arguments::Compare;
use experiment::plan::Plan;
use experiment::{BadInput, End, Options, Survey, catalog};

use crate::progress::{Progress, skip_line, span};
use crate::{print, report, stop};

pub(crate) fn run(arguments: &Compare) -> Result<ExitCode> {
    if arguments.list {
        return list(arguments.json);
    }
    let name = arguments.experiment.as_deref().unwrap_or_default();
    let plan = catalog::find(name)
        .and_then(|plan| experiment::with_arms(plan, &arguments.arm))
        .and_then(|plan| {
            plan.narrowed(
                arguments.quick,
                &arguments.arms,
                arguments.blocks.map(usize::from),
            )
        })
        .and_then(|plan| plan.in_environment(arguments.environment.as_deref()))
        .and_then(|plan| experiment::check_builds(&plan).map(|()| plan))
        .map_err(|error| BadInput(format!("{error:#}")))?;
    if arguments.dry_run {
        return dry_run(&plan);
    }
    crate::need_root(&format!("compare {name}"), crate::BUILDS)?;
    let folder = arguments
        .out
        .clone()
        .unwrap_or_else(|| default_folder(&plan.name));
    let stop = stop::catch()?;
    measure(&plan, &folder, arguments, &stop)?;
    report::write(&folder, arguments.again.as_deref(), arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the plan into `folder`. An interruption keeps the complete blocks and says how to continue. So does a failure:
/// the blocks are reported before the error is returned.
pub(crate) fn measure(
    plan: &Plan,
    folder: &Path,
    arguments: &Compare,
    stop: &AtomicBool,
) -> Result<()> {
    let record = folder.join("record.jsonl");
    let refuse = |what: &str| Err(BadInput(format!("{} {what}", record.display())).into());
    match (record.exists(), arguments.resume) {
        (true, false) => {
            return refuse("exists; add --resume to continue it, or choose another --out");
        }
        (false, true) => {
            return refuse("does not exist, so there is nothing to resume; leave --resume out");
        }
        (true, true) | (false, false) => {}
    }
    let seed = match arguments.resume {
        true => seed_of(folder, arguments.seed)?,
        false => arguments.seed.unwrap_or_else(seed_from_time),
    };
    let again = arguments.again.as_deref();
    let other = again
        .map(|other| report::other(folder, other))
        .transpose()?;
    let options = Options {
        quick: arguments.quick,
        seed,
        again: other.as_ref().map(|record| &record.header),
        attempts: arguments.attempts.unwrap_or(experiment::ATTEMPTS),
        resume: arguments.resume,
        command: command(plan, arguments, seed),
        stop,
    };
    let go_on = resume(&options.command, folder, None);
    match experiment::run(plan, folder, &options, &mut Progress::new())? {
        End::Complete => Ok(()),
        End::OutOfTime { blocks } => {
            print::note(format_args!(
                "stopped after {blocks} of {} blocks: trials take longer than announced on this machine; add the rest with: {go_on}",
                plan.blocks
            ));
            Ok(())
        }
        End::Interrupted { blocks: 0 } => {
            anyhow::bail!("interrupted before the first block was complete; nothing to report")
        }
        End::Interrupted { blocks } => {
            print::note(format_args!(
                "interrupted: {blocks} blocks kept; continue with: {go_on}"
            ));
            Ok(())
        }
        End::Failed { blocks: 0, error } => Err(error),
        End::Failed { blocks, error } => {
            report::write(folder, again, arguments.json)?;
            Err(error.context(format!(
                "{blocks} blocks kept; fix what failed, then continue with: {go_on}"
            )))
        }
    }
}

/// The seed of the record that is continued, which decides the order of its trials.
fn seed_of(folder: &Path, asked: Option<u64>) -> Result<u64> {
    let seed = report::read(folder)?.header.seed;
    match asked.filter(|asked| *asked != seed) {
        Some(asked) => Err(BadInput(format!(
            "{} has the seed {seed}, not {asked}; leave --seed out, or choose another --out",
            folder.join("record.jsonl").display()
        ))
        .into()),
        None => Ok(seed),
    }
}

/// The command that repeats this run.
fn command(plan: &Plan, arguments: &Compare, seed: u64) -> String {
    let experiment = arguments.experiment.as_deref().unwrap_or(&plan.name);
    let mut words = vec![format!("sudo lowroad compare {}", quote(experiment))];
    if arguments.quick {
        words.push("--quick".to_owned());
    }
    let added = arguments.arm.iter();
    words.extend(added.map(|arm| format!("--arm {}", quote(arm))));
    if !arguments.arms.is_empty() {
        words.push(format!("--arms {}", quote(&arguments.arms.join(","))));
    }
    let environment = arguments.environment.iter();
    words.extend(environment.map(|environment| format!("--environment {}", quote(environment))));
    words.extend(arguments.blocks.map(|blocks| format!("--blocks {blocks}")));
    let attempts = arguments.attempts;
    words.extend(attempts.map(|attempts| format!("--attempts {attempts}")));
    let again = arguments.again.iter();
    words.extend(again.map(|other| format!("--again {}", quote(&other.display().to_string()))));
    words.push(format!("--seed {seed}"));
    words.join(" ")
}

fn seed_from_time() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |now| u64::from(now.subsec_micros()) + 1)
}

fn default_folder(name: &str) -> PathBuf {
    let stamp = experiment::timestamp();
    let short = stamp[5..16].replace(['-', ':'], "").replace('T', "-");
    PathBuf::from(format!("lowroad-{name}-{short}"))
}

fn dry_run(plan: &Plan) -> Result<ExitCode> {
    let survey = Survey::new(plan)?;
    let Plan { arms, blocks, .. } = &survey.plan;
    print::line(format_args!(
        "{}: {} trials in {blocks} blocks, about {}",
        plan.name,
        survey.trials,
        span(survey.seconds)
    ))?;
    print::line(format_args!("baseline  {}", plan.baseline))?;
    print::line(format_args!("arms      {}", arms.join(", ")))?;
    for (name, build) in survey.plan.builds() {
        print::line(format_args!(
            "build     {name} {} {}, which runs {}",
            build.version, build.path, build.arm
        ))?;
    }
    for (name, host) in &survey.plan.hosts {
        print::line(format_args!("host      {name} {}", host.agent))?;
    }
    print::line(format_args!("placed    {}", plan.environment))?;
    for load in survey.loads() {
        print::line(format_args!("load      {load}"))?;
    }
    for skip in &survey.skipped {
        print::line(format_args!("{}", skip_line(skip)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<ExitCode> {
    let plans = catalog::shipped().context("an experiment that ships is broken")?;
    if json {
        let names: Vec<_> = plans
            .iter()
            .map(|plan| {
                serde_json::json!({
                    "name": plan.name, "about": plan.about, "arms": plan.arms,
                    "seconds": plan.seconds(), "quick_seconds": plan.quick_seconds(),
                })
            })
            .collect();
        print::line(format_args!("{}", serde_json::to_string_pretty(&names)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    for plan in plans {
        print::line(format_args!(
            "{:<18} {:>7}   --quick {:>6}   {}",
            plan.name,
            span(plan.seconds()),
            span(plan.quick_seconds()),
            plan.about
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_one_that_a_shell_runs() {
        let plan = catalog::find("relay-delay").unwrap();
        let arguments = Compare {
            experiment: Some("my plan.toml".to_owned()),
            arms: vec!["recv".to_owned(), "it's".to_owned()],
            again: Some("last week".into()),
            blocks: Some(10),
            ..Compare::default()
        };
        assert_eq!(
            command(&plan, &arguments, 7),
            "sudo lowroad compare 'my plan.toml' --arms 'recv,it'\\''s' --blocks 10 --again 'last week' --seed 7"
        );
    }
}
