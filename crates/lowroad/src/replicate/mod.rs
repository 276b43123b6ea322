//! The verbs of `lowroad replicate`.

mod apply;
mod capture;
mod log;
mod restore;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Record what a program does to its files, as it does it
#[derive(Debug, Args)]
#[command(before_help = "Examples:
  sudo lowroad replicate capture --tree /srv/app --to /var/lib/lowroad/app
  lowroad replicate log /var/lib/lowroad/app --follow
  sudo lowroad replicate apply /var/lib/lowroad/app --to /srv/replica --follow
  sudo lowroad replicate restore /var/lib/lowroad/app --out /srv/copy")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Follow a tree and write each change to a log, until SIGINT or SIGTERM
    Capture(capture::Capture),
    /// List the records of a log
    Log(log::Log),
    /// Keep a replica's tree up to date from a log
    Apply(apply::Apply),
    /// Make the tree as of an epoch, in a new folder
    Restore(restore::Restore),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    match arguments.verb {
        Verb::Apply(apply) => apply.run(json),
        Verb::Capture(capture) => capture.run(json),
        Verb::Log(log) => log.run(json),
        Verb::Restore(restore) => restore.run(json),
    }
}

fn of_log(error: replicate::log::Error) -> Failure {
    Failure::Failed(error.into())
}
