//! `cargo xtask`: the checks, the test runner and the guest that `./test` is made of.
#![expect(clippy::print_stdout, reason = "a task runner talks to its terminal")]
#![expect(clippy::print_stderr, reason = "a task runner talks to its terminal")]

mod agent;
mod check;
mod guest;
mod metadata;
mod run;
mod tally;
mod test;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::tally::Tally;

const USAGE: &str = "\
usage: cargo xtask VERB
  check [NAME..]     every check, or the named ones; `check --list` names them
  test [--full] [--sudo] [--no-guest] [FILTER]
                     checks, tests and the guest; FILTER keeps tests whose name contains it
  agent              builds netbench's agent, static, into target/
  guest [COMMAND]    boots Debian's 6.1 kernel and runs the BPF tests there, or one shell command
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
        ["agent"] => agent::build().map(|()| Tally::default()),
        ["guest"] => guest::run(),
        ["guest", command @ ..] => guest::shell(&command.join(" ")),
        _ => Err(Usage(USAGE.to_owned()).into()),
    }
}

/// The repository, wherever the command was called from.
fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}
