//! The binary people run: arguments, printing, exit codes. The jobs decide everything else.
#![expect(clippy::print_stderr, reason = "errors go to standard error")]

mod cli;
mod compare;
mod doctor;
mod documents;
mod exit;
mod relay;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

use cli::{Arguments, Command};
use exit::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr(arguments.verbose);
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Option<Command>) -> Result<(), Failure> {
    match command {
        None => exit::print(cli::OVERVIEW),
        Some(Command::Relay(arguments)) => relay::run(*arguments),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Compare(passed)) => compare::exec("compare", &passed),
        Some(Command::Report(passed)) => compare::exec("report", &passed),
        Some(Command::Selftest(passed)) => compare::exec("selftest", &passed),
        Some(Command::Demo(passed)) => compare::exec("demo", &passed),
        Some(Command::Clean(passed)) => compare::exec("clean", &passed),
        Some(Command::Completions { shell }) => documents::completions(shell),
        Some(Command::Man { out }) => documents::man(&out),
    }
}

/// Warnings by default; each `-v` says more.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}
