//! The verbs of `lowroad router`.

mod ask;
mod build;
mod inputs;
mod run;

use std::path::PathBuf;

use ask::Question;
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
    /// The control socket of a router that runs [default: /run/lowroad/router.sock]
    #[arg(long, global = true, value_name = "PATH")]
    control: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read routes and rules, and say what became of them
    Build(Box<build::Build>),
    /// Route by the kernel's tables, which BIRD, FRR and `ip` change, until SIGINT or SIGTERM
    Run(Box<run::Run>),
    /// Say what a running router holds, and what became of packets
    Status,
    /// List the routes of a running router
    Routes(ask::Routes),
    /// List the next hops of a running router
    NextHops,
    /// List the rules of a running router, with their packets
    Rules,
    /// Have a running router read its rules anew
    Reload,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments {
        json,
        control,
        verb,
    } = arguments;
    let question = match verb {
        Verb::Build(build) => return build.run(json),
        Verb::Run(run) => return run.run(control, json),
        Verb::Status => Question::status(),
        Verb::Routes(which) => Question::routes(&which),
        Verb::NextHops => Question::next_hops(),
        Verb::Rules => Question::rules(),
        Verb::Reload => Question::reload(),
    };
    question.ask(control, json)
}
