//! The verbs of `lowroad router`.

mod ask;
mod bench;
mod build;
mod crossover;
mod devices;
mod diff;
mod engine;
mod explain;
mod generate;
mod given;
mod inputs;
mod inspect;
mod process;
mod report;
mod run;
mod together;

use ask::{Question, Socket};
use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Longest-prefix match and firewall, from the tables you have
#[derive(Debug, Args)]
#[command(before_help = "Examples:
  ip -json route show table all | lowroad router build --rib - -o table.lrt
  lowroad router explain table.lrt '10.0.0.1:5000 -> 192.0.2.7:80/udp'
  lowroad router process --rib rib.bz2 --spread 200 --traffic zipf
  lowroad router bench table.lrt --quick
  sudo lowroad router run --datapath xdp --interface eth1,eth2")]
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
    /// Put packets through routes and rules, and say what became of them and how long it took
    Process(Box<process::Process>),
    /// List the devices that packets can be processed on
    Devices,
    /// Measure which engine suits these routes and rules on this machine
    Bench(Box<bench::Bench>),
    /// Measure from which batches on a device decides faster than a CPU thread, if at all
    Crossover(Box<crossover::Crossover>),
    /// Route by the kernel's tables, which BIRD, FRR and `ip` change, or by a table image, until SIGINT
    /// or SIGTERM
    Run(Box<run::Run>),
    /// Say what a running router holds, and what became of packets
    Status(Socket),
    /// List the routes of a running router
    Routes(ask::Routes),
    /// List the next hops of a running router
    NextHops(Socket),
    /// List the rules of a running router, with their packets
    Rules(Socket),
    /// Have a running router read its rules and its table image anew
    Reload(Socket),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    match arguments.verb {
        Verb::Build(build) => build.run(json),
        Verb::Inspect(inspect) => inspect.run(json),
        Verb::Diff(diff) => diff.run(json),
        Verb::Explain(explain) => explain.run(json),
        Verb::Generate(verb) => verb.run(),
        Verb::Process(process) => process.run(json),
        Verb::Devices => devices::run(json),
        Verb::Bench(bench) => bench.run(json),
        Verb::Crossover(crossover) => crossover.run(json),
        Verb::Run(run) => run.run(json),
        Verb::Status(socket) => Question::status().ask(socket, json),
        Verb::Routes(which) => which.ask(json),
        Verb::NextHops(socket) => Question::next_hops().ask(socket, json),
        Verb::Rules(socket) => Question::rules().ask(socket, json),
        Verb::Reload(socket) => Question::reload().ask(socket, json),
    }
}
