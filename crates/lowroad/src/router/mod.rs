//! The verbs of `lowroad router`.

mod build;
mod inputs;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Longest-prefix match and firewall, from the tables you have
#[derive(Debug, Args)]
#[command(before_help = "Examples:
  lowroad router build --rib rib.bz2 --rules rules.json --punt-unsupported
  ip -json route | lowroad router build --rib -")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read routes and rules, and say what became of them
    Build(Box<build::Build>),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    match arguments.verb {
        Verb::Build(build) => build.run(json),
    }
}
