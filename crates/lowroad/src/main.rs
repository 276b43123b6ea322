//! The program lowroad: arguments, printing, exit codes. The jobs decide everything else.
#![expect(clippy::print_stderr, reason = "errors go to standard error")]

mod cli;
mod compare;
mod completion_values;
mod control_endpoint;
mod doctor;
mod documents;
mod exit;
mod features;
mod netbench;
mod relay;
mod replicate;
mod router;

use std::process::ExitCode;

use clap::Parser;

use cli::{Arguments, Command};
use exit::Failure;

/// Rows and batches are allocated by the million: an allocator that keeps its pages saves a fifth of the time
/// of reading a capture.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.verbosity.log();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let without_json = matches!(
        arguments.command,
        None | Some(Command::Completions { .. } | Command::Man { .. })
    );
    if arguments.json && without_json {
        let what = "--json is for commands with results: name one, or leave it out";
        return Err(Failure::Input(what.to_owned()));
    }
    match arguments.command {
        None => exit::print(cli::OVERVIEW),
        Some(Command::Relay(arguments)) => relay::run(*arguments),
        Some(Command::Features(arguments)) => features::run(*arguments),
        Some(Command::Router(arguments)) => router::run(*arguments),
        Some(Command::Replicate(arguments)) => replicate::run(arguments),
        Some(Command::Netbench(arguments)) => netbench::run(*arguments),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Comparison(_)) => Err(compare::exec()),
        Some(Command::Completions { shell }) => documents::completions(shell),
        Some(Command::Man { out }) => documents::man(&out),
    }
}
