//! The whole test run: checks, every test in a process of its own, documentation tests, the guest.

mod aarch64;
mod binaries;
mod runner;

use std::time::Instant;

use anyhow::Result;

use crate::Usage;
use crate::agent;
use crate::check;
use crate::guest;
use crate::tally::Tally;

pub(crate) use binaries::{Binary, build, passed};

/// What `cargo xtask test` was asked.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Also what takes long or needs programs that are not ours.
    pub(crate) full: bool,
    /// Tests that need root are run again through sudo.
    pub(crate) sudo: bool,
    pub(crate) no_guest: bool,
    pub(crate) filter: Option<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        for argument in arguments {
            match *argument {
                "--full" => options.full = true,
                "--sudo" => options.sudo = true,
                "--no-guest" => options.no_guest = true,
                flag if flag.starts_with('-') => {
                    return Err(Usage(format!("test does not know {flag}")).into());
                }
                filter => options.filter = Some(filter.to_owned()),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    let everything = options.filter.is_none();
    if everything {
        stage(&mut tally, "checks", |tally| {
            check::run_into(tally, &[]);
            Ok(())
        })?;
    }
    stage(&mut tally, "build the agent", |_| {
        // The tests that need it are skipped, and say so.
        agent::build().or_else(|error| {
            eprintln!("{error:#}");
            Ok(())
        })
    })?;
    let binaries = stage(&mut tally, "build the tests", |_| build())?;
    stage(&mut tally, "tests", |tally| {
        runner::run(&binaries, options, tally)
    })?;
    if everything {
        stage(&mut tally, "documentation tests", binaries::documentation)?;
    }
    if everything && options.full {
        stage(&mut tally, "64-bit ARM", aarch64::test)?;
    }
    if everything && !options.no_guest {
        stage(&mut tally, "Linux 6.1 guest", |tally| {
            guest::test(&binaries, tally)
        })?;
    }
    tally.close();
    Ok(tally)
}

fn stage<T>(tally: &mut Tally, name: &str, run: impl FnOnce(&mut Tally) -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = run(tally);
    tally.stage(name, start.elapsed());
    result
}
