//! `lowroad demo`: every job that exists, quickly, into one folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use arguments::{Compare, Demo};
use experiment::plan::Plan;
use experiment::{BadInput, catalog};

use crate::{compare, print, report};

/// One experiment of each job.
const EXPERIMENTS: &[&str] = &["relay-delay"];

pub(crate) fn run(arguments: &Demo) -> Result<ExitCode> {
    crate::need_root("demo", crate::BUILDS)?;
    for name in EXPERIMENTS {
        let plan = catalog::find(name)?.narrowed(true, &[], None)?;
        let folder = arguments.out.join(name);
        measure(&plan, &folder, arguments.seed)?;
        report::write(&folder, false)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes on with what is there where that is possible, else begins anew.
fn measure(plan: &Plan, folder: &Path, seed: u64) -> Result<()> {
    let run = |resume| {
        let asked = Compare {
            experiment: Some(plan.name.clone()),
            out: Some(folder.to_owned()),
            quick: true,
            seed: Some(seed),
            resume,
            ..Compare::default()
        };
        compare::measure(plan, folder, &asked)
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
