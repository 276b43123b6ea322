//! The verbs of `lowroad router`.

mod bench;
mod build;
mod engine;
mod inputs;
mod process;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Longest-prefix match and firewall, from the tables you have
#[derive(Debug, Args)]
#[command(before_help = "Examples:
  lowroad router build --rib rib.bz2 --rules rules.json --punt-unsupported
  ip -json route | lowroad router build --rib -
  lowroad router process --rib rib.bz2 --spread 200 --traffic zipf
  lowroad router bench --rib rib.bz2 --spread 200 --quick")]
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
    /// Put packets through routes and rules, and say what became of them and how long it took
    Process(Box<process::Process>),
    /// Measure which engine suits these routes and rules on this machine
    Bench(Box<bench::Bench>),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    match arguments.verb {
        Verb::Build(build) => build.run(json),
        Verb::Process(process) => process.run(json),
        Verb::Bench(bench) => bench.run(json),
    }
}
