//! `lowroad compare|report|selftest|demo|clean`: arguments, progress, exit codes.

mod clean;
mod compare;
mod demo;
mod print;
mod progress;
mod report;
mod selftest;
mod stop;

use std::io::{stdin, stdout};
use std::process::ExitCode;

use anyhow::Result;
use arguments::{Comparison, Verbosity};
use clap::{Parser, Subcommand};
use datapath::ErrorClass;

/// Run experiments, and report what each datapath costs.
#[derive(Debug, Parser)]
#[command(name = "lowroad", version = arguments::VERSION, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Comparison(Comparison),
    /// Run an engine of the router: read a JSON line, write a JSON line
    #[command(hide = true)]
    Engine,
    /// Print a JSON line for each environment: its name, and what this machine lacks for it
    #[command(hide = true)]
    Environments,
    /// Write files and time the writes: read a JSON line, write a JSON line
    #[command(hide = true)]
    Writer,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.verbosity.log();
    match dispatch(arguments.command) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    let comparison = match command {
        Command::Comparison(comparison) => comparison,
        Command::Engine => {
            experiment::jobs::router::serve(stdin().lock(), stdout().lock())?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Environments => return environments(),
        Command::Writer => {
            experiment::jobs::replicate::serve(stdin().lock(), stdout().lock())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    match comparison {
        Comparison::Compare(arguments) => compare::run(&arguments),
        Comparison::Report(arguments) => report::run(&arguments),
        Comparison::Selftest(arguments) => selftest::run(&arguments),
        Comparison::Demo(arguments) => demo::run(&arguments),
        Comparison::Clean(_) => clean::run(),
    }
}

/// Serves `lowroad doctor`, which does not link the test bed.
fn environments() -> Result<ExitCode> {
    for (name, found) in testbed::machine() {
        let missing = found.err();
        let line = serde_json::json!({ "name": name, "missing": missing });
        print::line(format_args!("{line}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one line and returns the exit code.
fn fail(error: &anyhow::Error) -> ExitCode {
    print::note(format_args!("error: {error:#}"));
    exit_code(experiment::class(error))
}

fn exit_code(class: ErrorClass) -> ExitCode {
    ExitCode::from(class.exit_code())
}

/// Refuses a command early if it needs root for what it `does`, and names the command to run instead.
fn need_root(command: &str, does: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(experiment::CannotRun(format!(
        "{command} {does}, which needs root; run: sudo lowroad {command}"
    ))
    .into())
}

/// The part of every measurement that needs root.
const BUILDS: &str = "creates network namespaces and loads BPF programs";
