//! `lowroad demo`: one question of each job, answered on one page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use ::report::{Analysis, DemoPart};
use anyhow::{Context, Result};
use arguments::{Compare, Demo};
use datapath::ErrorClass;
use experiment::plan::Plan;
use experiment::{BadInput, catalog};

use crate::progress::span;
use crate::{compare, print, report, stop};

/// One experiment of each job.
const EXPERIMENTS: [&str; 5] = [
    "demo-relay",
    "demo-features",
    "demo-router",
    "demo-replicate",
    "demo-netbench",
];

pub(crate) fn run(arguments: &Demo) -> Result<ExitCode> {
    crate::need_root("demo", crate::BUILDS)?;
    let plans = EXPERIMENTS.map(catalog::find);
    let plans: Vec<Plan> = plans.into_iter().collect::<Result<_>>()?;
    let seconds: f64 = plans.iter().map(Plan::seconds).sum();
    print::note(format_args!(
        "five jobs, one question each: about {}; Ctrl-C keeps what is complete",
        span(seconds)
    ));
    let stop = stop::catch()?;
    let mut records = Vec::new();
    for plan in &plans {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let folder = arguments.out.join(&plan.name);
        let measured = measure(plan, &folder, arguments.seed, &stop)
            .and_then(|()| report::read(&folder))
            .and_then(|record| report::write_files(&folder, &record).map(|()| record));
        if let Err(error) = &measured {
            print::note(format_args!("{}: {error:#}", plan.name));
        }
        records.push((plan, measured));
    }
    let analyses: Vec<_> = records
        .iter()
        .map(|(plan, measured)| (plan, measured.as_ref().map(Analysis::new)))
        .collect();
    let parts: Vec<DemoPart<'_>> = analyses
        .iter()
        .map(|(plan, analysis)| match analysis {
            Ok(analysis) => DemoPart::Measured {
                analysis,
                report: format!("{}/report.html", plan.name),
            },
            Err(error) => DemoPart::Missing {
                experiment: plan.name.clone(),
                reason: format!("{error:#}"),
            },
        })
        .collect();
    for part in &parts {
        print::line(format_args!("{}", ::report::demo_answer(part)))?;
    }
    let page = arguments.out.join("index.html");
    fs::create_dir_all(&arguments.out)
        .and_then(|()| fs::write(&page, ::report::demo(&parts)))
        .with_context(|| page.display().to_string())?;
    print::line(format_args!("page: {}", page.display()))?;
    let failed = records.iter().all(|(_, measured)| measured.is_err());
    Ok(if failed {
        crate::exit_code(ErrorClass::Failed)
    } else {
        ExitCode::SUCCESS
    })
}

/// Continues an incomplete record where that is possible, and begins anew otherwise.
fn measure(plan: &Plan, folder: &Path, seed: u64, stop: &AtomicBool) -> Result<()> {
    let run = |resume| {
        let options = Compare {
            experiment: Some(plan.name.clone()),
            out: Some(folder.to_owned()),
            seed: Some(seed),
            // It keeps to the time that is announced, whatever the machine does.
            quick: true,
            resume,
            ..Compare::default()
        };
        compare::measure(plan, folder, &options, stop)
    };
    if !folder.exists() {
        return run(false);
    }
    if experiment::unfinished(folder).unwrap_or(false) {
        match run(true) {
            Err(error) if error.is::<BadInput>() => print::note(format_args!("{error}")),
            ended => return ended,
        }
    }
    let kept = set_aside(folder)?;
    print::note(format_args!(
        "the earlier results are kept in {}",
        kept.display()
    ));
    run(false)
}

/// Renames the folder to the first of `NAME.1`, `NAME.2`, .. that is free.
fn set_aside(folder: &Path) -> Result<PathBuf> {
    let numbered = |number: usize| folder.with_extension(number.to_string());
    let free = (1..)
        .map(numbered)
        .find(|path| !path.exists())
        .context("every number is taken")?;
    fs::rename(folder, &free).with_context(|| free.display().to_string())?;
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_questions_fit_six_minutes() {
        let plans = EXPERIMENTS.map(|name| catalog::find(name).unwrap());
        let jobs: std::collections::BTreeSet<_> = plans.iter().map(|plan| &plan.job).collect();
        assert_eq!(jobs.len(), EXPERIMENTS.len());
        for plan in &plans {
            assert_eq!(plan.questions.len(), 1, "{}", plan.name);
            assert!(plan.questions[0].headline.is_some(), "{}", plan.name);
            // The command that a report states is that of the whole plan.
            let quick = plan.clone().narrowed(true, &[], None).unwrap();
            assert_eq!(
                (quick.arms, quick.blocks, quick.loads.len()),
                (plan.arms.clone(), plan.blocks, plan.loads.len())
            );
        }
        let seconds: f64 = plans.iter().map(Plan::seconds).sum();
        assert!(seconds <= 360.0, "{seconds}");
    }

    #[test]
    fn earlier_results_are_kept_under_the_next_number() {
        let out = tempfile::tempdir().unwrap();
        let folder = out.path().join("relay-delay");
        for number in ["1", "2"] {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("record.jsonl"), number).unwrap();
            let kept = set_aside(&folder).unwrap();
            assert_eq!(kept, out.path().join(format!("relay-delay.{number}")));
            let text = fs::read_to_string(kept.join("record.jsonl")).unwrap();
            assert_eq!(text, number);
            assert!(!folder.exists());
        }
    }
}
