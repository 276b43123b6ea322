//! `cargo xtask`: the checks, the test runner and the guest that `./test` is made of.
#![expect(clippy::print_stdout, reason = "a task runner talks to its terminal")]
#![expect(clippy::print_stderr, reason = "a task runner talks to its terminal")]

mod agent;
mod check;
mod cpu_time;
mod dist;
mod folder;
mod fuzz;
mod guest;
mod inventory;
mod lint;
mod metadata;
mod run;
mod tally;
mod test;
mod weight;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::test::Scope;

const USAGE: &str = "\
usage: cargo xtask VERB
  check [NAME..]     every check, or the named ones; `check --list` names them
  test [--full] [--sudo] [--no-guest] [--remember] [CRATE | WORD]
                     checks, tests and the guest; CRATE builds and runs the tests of one crate,
                     WORD keeps tests whose name contains it; --remember writes xtask/times.tsv
  inventory          builds the tests and finds each test of xtask/inventory.txt among them
  dist [OPTION..]    builds the programs that are handed out and packs them, into target/packages/; `dist help` names
                     the options
  weight [WHAT]      what is linked, sizes, build times, against limits; `weight help` names them
  fuzz [--seconds N] [TARGET..]
                     fuzzes the parsers with libFuzzer, each target for N seconds
  agent              builds netbench's agent, static, into target/
  guest [--full | --package CRATE]
                     boots Debian's 6.1 kernel and runs the tests of the guest there
  guest COMMAND      runs one shell command there
";

/// Arguments that no task understands.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    if lint::is_compiler() {
        return lint::compile().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        });
    }
    if fuzz::is_compiler() {
        return fuzz::compile().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        });
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&arguments) {
        Ok(tally) if tally.failed() == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn dispatch(arguments: &[&str]) -> Result<Tally> {
    std::env::set_current_dir(root()).context("the repository root")?;
    match arguments {
        ["check", "--list"] => {
            check::list();
            Ok(Tally::default())
        }
        ["check", names @ ..] => check::run(names),
        ["test", options @ ..] => test::run(&test::Options::parse(options)?),
        ["dist", arguments @ ..] => dist::run(arguments),
        ["weight", arguments @ ..] => weight::run(arguments),
        ["fuzz", arguments @ ..] => fuzz::run(arguments),
        ["inventory"] => test::inventory(),
        ["agent"] => agent::build(false).map(|_| Tally::default()),
        ["guest"] => guest::run(&Scope::Workspace, false),
        ["guest", "--full"] => guest::run(&Scope::Workspace, true),
        ["guest", "--package", package] => {
            guest::run(&Scope::Package((*package).to_owned()), false)
        }
        ["guest", command @ ..] => guest::shell(&command.join(" ")),
        _ => Err(Usage(USAGE.to_owned()).into()),
    }
}

/// The repository, wherever the command was called from.
fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}
