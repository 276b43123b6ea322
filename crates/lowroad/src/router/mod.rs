//! The verbs of `lowroad router`.

mod build;
mod diff;
mod explain;
mod generate;
mod given;
mod inputs;
mod inspect;
mod report;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Longest-prefix match and firewall, from the tables you have
#[derive(Debug, Args)]
#[command(before_help = "Examples:
  ip -json route show table all | lowroad router build --rib - -o table.lrt
  lowroad router explain table.lrt '10.0.0.1:5000 -> 192.0.2.7:80/udp'")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a table image of routes and rules, and say what became of each line
    Build(Box<build::Build>),
    /// List what is in a table image
    Inspect(inspect::Inspect),
    /// Check every engine against a naive one on these tables, or tell two table images apart
    Diff(Box<diff::Diff>),
    /// Say what becomes of a packet, and why
    Explain(Box<explain::Explain>),
    /// Make prefixes, rules or traffic to measure with
    #[command(subcommand)]
    Generate(generate::Verb),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    match arguments.verb {
        Verb::Build(build) => build.run(json),
        Verb::Inspect(inspect) => inspect.run(json),
        Verb::Diff(diff) => diff.run(json),
        Verb::Explain(explain) => explain.run(json),
        Verb::Generate(verb) => verb.run(),
    }
}
