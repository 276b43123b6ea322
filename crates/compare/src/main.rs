//! `lowroad compare|report|selftest|demo|clean`: arguments, progress, exit codes.

mod clean;
mod compare;
mod demo;
mod progress;
mod report;
mod selftest;
mod stop;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Runs the experiments and reports what each datapath costs.
#[derive(Debug, Parser)]
#[command(name = "lowroad", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Compare(compare::Arguments),
    Report(report::Arguments),
    Selftest(selftest::Arguments),
    Demo(demo::Arguments),
    Clean(clean::Arguments),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("LOWROAD_LOG")
                .unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    match dispatch(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Clean(_) => clean::run(),
    }
}

/// Prints one line and picks the exit code: 3 when this machine cannot, 2 for bad input, else 1.
#[expect(clippy::print_stderr, reason = "the one place errors are printed")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    if error.is::<experiment::CannotRun>() {
        ExitCode::from(3)
    } else if error.is::<BadInput>() {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// Arguments or files that no retry can make work (exit code 2).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadInput(String);

/// Refuses early what needs root, with the command to run instead.
fn need_root(command: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(experiment::CannotRun(format!(
        "{command} creates network namespaces and loads BPF programs, which needs root; run: sudo lowroad {command}"
    ))
    .into())
}
