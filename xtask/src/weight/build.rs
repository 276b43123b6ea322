//! CPU time of a clean build of what `./demo` runs, for this commit and for another, in turn.
//!
//! Seconds depend on the machine and its neighbours, so that only the ratio of the two has a limit.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

pub(super) use crate::folder::remove;
use crate::tally::{Outcome, Tally};
use crate::{cpu_time, run};

/// The most CPU time that this commit may take, as a share of the other's.
const SHARE: f64 = 0.5;

/// Clones and their builds; removed before and after each build.
const FOLDER: &str = "target/weight/build";

/// The cost of a build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// User and system time of the compiler and all that it started, in seconds.
    pub(super) cpu: f64,
    /// Wall-clock time in seconds.
    pub(super) wall: f64,
}

/// Builds HEAD, and `other` beside it, `runs` times in turn.
pub(super) fn weigh(tally: &mut Tally, other: Option<&str>, runs: usize) -> Result<()> {
    let mut sums = [0.0, 0.0];
    for run in 1..=runs {
        for (sum, commit) in sums.iter_mut().zip(std::iter::once("HEAD").chain(other)) {
            let cost = clean_build(commit)?;
            println!(
                "run {run}: {commit}: {:.0} s of CPU time, {:.0} s",
                cost.cpu, cost.wall
            );
            *sum += cost.cpu;
        }
    }
    let [this, that] = sums;
    if other.is_none() {
        // Without another commit there is nothing to compare with, and no verdict.
        return Ok(());
    }
    let share = this / that;
    let text = format!("{share:.2} of the CPU time, at most {SHARE:.2}");
    println!("{text}");
    let outcome = if share <= SHARE {
        Outcome::Passed
    } else {
        Outcome::Failed(text)
    };
    tally.add("weight: build", outcome);
    Ok(())
}

/// Clones a commit and runs the commands by which its `./demo` builds, with nothing of an earlier build.
fn clean_build(commit: &str) -> Result<Cost> {
    let folder = Path::new(FOLDER);
    remove(folder)?;
    checkout(commit, folder)?;
    // Downloads are not what is weighed.
    cargo(folder, &["fetch", "--locked"])?;
    let demo = fs::read_to_string(folder.join("demo")).context("demo")?;
    let commands = demo.lines().filter(|line| line.starts_with("cargo "));
    let cost = measure(|| {
        commands.clone().try_for_each(|command| {
            let folder = folder.display();
            run::quietly(
                "sh",
                &[
                    "-ec",
                    &format!("unset CARGO_TARGET_DIR; cd '{folder}'; {command}"),
                ],
            )
        })
    })?;
    remove(folder)?;
    Ok(cost)
}

/// Puts the files of a commit into a folder that does not exist.
pub(super) fn checkout(commit: &str, folder: &Path) -> Result<()> {
    let commit = run::output(
        "git",
        &["rev-parse", "--verify", &format!("{commit}^{{commit}}")],
    )?;
    let folder = folder.to_string_lossy().into_owned();
    run::quietly("git", &["clone", "--quiet", "--no-checkout", ".", &folder])?;
    run::quietly(
        "git",
        &[
            "-C",
            &folder,
            "checkout",
            "--quiet",
            "--detach",
            commit.trim(),
        ],
    )
}

/// Runs cargo in a checkout, which builds into the checkout's own target folder.
pub(super) fn cargo(folder: &Path, arguments: &[&str]) -> Result<()> {
    let status = Command::new("cargo")
        .args(arguments)
        .current_dir(folder)
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .status()
        .context("cargo does not start")?;
    if !status.success() {
        bail!("cargo {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

/// The cost of the processes that `work` starts and waits for.
pub(super) fn measure(work: impl FnOnce() -> Result<()>) -> Result<Cost> {
    let (before, start) = (children()?, Instant::now());
    work()?;
    Ok(Cost {
        cpu: children()? - before,
        wall: start.elapsed().as_secs_f64(),
    })
}

/// CPU seconds of the children that have ended, and of theirs.
fn children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    let time = cpu_time::children(&stat);
    let time = time.context("/proc/self/stat has another form than proc_pid_stat(5) describes")?;
    Ok(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_child_is_measured() {
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let cost = measure(|| run::quietly("sh", &["-c", spin])).unwrap();
        assert!(cost.cpu > 0.0, "{cost:?}");
    }
}
