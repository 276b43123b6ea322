//! The whole test run: checks, every test in a process of its own, documentation tests, the guest.

mod aarch64;
mod binaries;
mod child;
mod dependencies;
mod documentation;
mod queue;
mod runner;
mod times;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::Usage;
use crate::agent;
use crate::check;
use crate::fuzz;
use crate::guest;
use crate::inventory::{self, Inventory};
use crate::lint;
use crate::metadata::{self, packages, text};
use crate::tally::{Outcome, Tally};

pub(crate) use binaries::{Binary, Scope, Suite, build};
use dependencies::Artifacts;

/// Crates whose tests start the programs of other crates.
const START_PROGRAMS: &[&str] = &["compare", "experiment"];
/// The programs that tests start, as cargo's arguments.
const PROGRAMS: &[&str] = &["--bins", "--package", "lowroad", "--package", "compare"];
/// Crates whose tests start netbench's agent.
const START_AGENT: &[&str] = &["compare", "experiment", "lowroad", "testbed"];

/// Which tests a run is about.
#[derive(Debug, Default)]
pub(crate) enum Tests {
    /// All of them, with the checks and the guest.
    #[default]
    All,
    /// The tests of one workspace member; only these are built.
    Package(String),
    /// Tests whose name contains the word.
    Named(String),
}

/// The options of `cargo xtask test`.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Also what takes long or needs programs that are not ours.
    pub(crate) full: bool,
    /// Tests that need root are run again through sudo.
    pub(crate) sudo: bool,
    pub(crate) no_guest: bool,
    /// How long tests took is written to the file that orders them.
    pub(crate) remember: bool,
    pub(crate) tests: Tests,
}

impl Options {
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        for argument in arguments {
            match *argument {
                "--full" => options.full = true,
                "--sudo" => options.sudo = true,
                "--no-guest" => options.no_guest = true,
                "--remember" => options.remember = true,
                flag if flag.starts_with('-') => {
                    return Err(Usage(format!("test does not know {flag}")).into());
                }
                word if is_member(word)? => options.tests = Tests::Package(word.to_owned()),
                word => options.tests = Tests::Named(word.to_owned()),
            }
        }
        Ok(options)
    }

    fn everything(&self) -> bool {
        matches!(self.tests, Tests::All)
    }

    fn scope(&self) -> Scope {
        match &self.tests {
            Tests::Package(package) => Scope::Package(package.clone()),
            Tests::All | Tests::Named(_) => Scope::Workspace,
        }
    }
}

fn is_member(word: &str) -> Result<bool> {
    let metadata = metadata::load(false)?;
    Ok(packages(&metadata).any(|package| text(package, "name") == word))
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    let everything = options.everything();
    if everything {
        stage(&mut tally, "checks", |tally| {
            // Clippy looks at what is compiled for the tests.
            check::run_into(tally, &[], &["clippy"]);
            Ok(())
        })?;
    }
    let kept = dependencies::entry()?;
    if let Some(kept) = &kept {
        stage(&mut tally, "restore dependencies", |_| kept.restore())?;
    }
    let messages = stage(&mut tally, "build the programs", |_| {
        build_programs(&options.tests)
    })?;
    let suites = if everything {
        let built = stage(&mut tally, "build and lint the tests", |tally| {
            let built = binaries::build_and_lint()?;
            tally.add(
                "check clippy",
                lint::outcome(messages.iter().chain(&built.messages)),
            );
            Ok(built)
        })?;
        let artifacts = Artifacts::of(&built.messages);
        println!("{}", artifacts.summary());
        if let Some(kept) = &kept {
            stage(&mut tally, "keep dependencies", |_| kept.save(&artifacts))?;
        }
        built.suites
    } else {
        stage(&mut tally, "build the tests", |_| build(&options.scope()))?
    };
    if everything {
        check_inventory(&suites, &mut tally);
    }
    run_tests(&suites, options, &mut tally)?;
    if everything {
        stage(&mut tally, "documentation tests", documentation::test)?;
    }
    if everything && options.full {
        stage(&mut tally, "64-bit ARM", aarch64::test)?;
        stage(&mut tally, "fuzz targets", fuzz::run_all)?;
    }
    tally.close();
    Ok(tally)
}

/// `cargo xtask inventory`: builds the tests and looks up every test that the repository had.
pub(crate) fn inventory() -> Result<Tally> {
    let mut tally = Tally::default();
    check_inventory(&build(&Scope::Workspace)?, &mut tally);
    tally.close();
    Ok(tally)
}

fn check_inventory(suites: &[Suite], tally: &mut Tally) {
    let check = || -> Result<Outcome> {
        let in_guest = guest::select::names(suites, &Scope::Workspace)?;
        let tests = inventory::Tests::of(suites, in_guest);
        Ok(Inventory::load()?.check(&tests))
    };
    let outcome = check().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    tally.add("inventory", outcome);
}

/// Builds what tests start and cargo does not build with them. Returns cargo's messages.
fn build_programs(tests: &Tests) -> Result<Vec<Value>> {
    let mut messages = Vec::new();
    let needed_by = |crates: &[&str]| match tests {
        Tests::Package(package) => crates.contains(&package.as_str()),
        Tests::All | Tests::Named(_) => true,
    };
    if needed_by(START_AGENT) {
        // The tests that need it are skipped, and say so.
        match agent::build(matches!(tests, Tests::All)) {
            Ok(built) => messages = built,
            Err(error) => eprintln!("{error:#}"),
        }
    }
    // With the whole workspace, cargo builds these programs beside the tests.
    if matches!(tests, Tests::Package(_)) && needed_by(START_PROGRAMS) {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--locked", "--quiet"]).args(PROGRAMS);
        if !cargo.status().context("cargo does not start")?.success() {
            bail!("the programs that tests start do not build");
        }
    }
    Ok(messages)
}

/// Runs the tests here and beside them those of the guest, which emulates another kernel slowly. What
/// `--full` repeats there is a lot, and waits until the CPUs are free.
fn run_tests(suites: &[Suite], options: &Options, tally: &mut Tally) -> Result<()> {
    let start = Instant::now();
    let with_guest = options.everything() && !options.no_guest;
    let shared = Mutex::new(&mut *tally);
    let guest_ended = AtomicBool::new(true);
    let (here, guest) = thread::scope(|scope| {
        let guest = (with_guest && !options.full).then(|| {
            guest_ended.store(false, Ordering::Relaxed);
            scope.spawn(|| {
                guest::run_and_report(suites, false, &shared);
                guest_ended.store(true, Ordering::Relaxed);
                start.elapsed()
            })
        });
        let here = runner::run(suites, options, &shared, &guest_ended);
        let here = here.map(|()| start.elapsed());
        (here, guest.map(thread::ScopedJoinHandle::join))
    });
    let here = here?;
    tally.stage("tests", here);
    if let Some(guest) = guest {
        let guest = guest.map_err(|_| anyhow!("the guest's thread panicked"))?;
        tally.concurrent_stage("Linux 6.1 guest", guest);
        let longer = guest.saturating_sub(here);
        if !longer.is_zero() {
            tally.stage("the guest after the tests", longer);
        }
    }
    if with_guest && options.full {
        stage(tally, "Linux 6.1 guest", |tally| {
            guest::run_and_report(suites, true, &Mutex::new(tally));
            Ok(())
        })?;
    }
    Ok(())
}

fn stage<T>(tally: &mut Tally, name: &str, run: impl FnOnce(&mut Tally) -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = run(tally);
    tally.stage(name, start.elapsed());
    result
}

/// How many tests a `test result:` line says passed.
pub(crate) fn passed(line: &str) -> Option<usize> {
    let (_, counts) = line.split_once("test result: ok. ")?;
    counts.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn libtest_counts_are_read() {
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(passed(line), Some(12));
        assert_eq!(passed("test result: FAILED. 11 passed; 1 failed"), None);
    }
}
