//! The verbs of `lowroad router`.

mod batching;
mod bench;
mod build;
mod client;
mod crossover;
mod device;
mod devices;
mod diff;
mod engine;
mod explain;
mod format;
mod generate;
mod inputs;
mod inspect;
mod process;
mod report;
mod run;
mod table_source;

use clap::{Args, Subcommand};

use crate::exit::Failure;
use client::{ControlSocket, Request};

/// Route and filter packets by the tables that you have
#[derive(Debug, Args)]
#[command(after_help = "Examples:
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
    /// Make a table image of routes and rules, and report on each line
    Build(Box<build::Build>),
    /// List the contents of a table image
    Inspect(inspect::Inspect),
    /// Check every engine against a naive one, or list the differences of two tables
    Diff(Box<diff::Diff>),
    /// Show how a packet is handled, and why
    Explain(Box<explain::Explain>),
    /// Generate prefixes, rules or traffic
    #[command(subcommand)]
    Generate(generate::Verb),
    /// Process packets by routes and rules, and report decisions and times
    Process(Box<process::Process>),
    /// List the devices that can process packets
    Devices,
    /// Measure how fast each engine looks up these routes and rules
    Bench(Box<bench::Bench>),
    /// Measure from which batch size a device is faster than a CPU thread, if at all
    Crossover(Box<crossover::Crossover>),
    /// Route by the kernel's tables, which BIRD, FRR and `ip` change, or by a table image, until SIGINT
    /// or SIGTERM
    Run(Box<run::Run>),
    /// Show the tables and packet counts of a running router
    Status(ControlSocket),
    /// List the routes of a running router
    Routes(client::Routes),
    /// List the next hops of a running router
    NextHops(ControlSocket),
    /// List the rules of a running router, with their packet counts
    Rules(ControlSocket),
    /// Make a running router read its rules and its table image again
    Reload(ControlSocket),
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
        Verb::Status(socket) => Request::status().send(socket, json),
        Verb::Routes(which) => which.run(json),
        Verb::NextHops(socket) => Request::next_hops().send(socket, json),
        Verb::Rules(socket) => Request::rules().send(socket, json),
        Verb::Reload(socket) => Request::reload().send(socket, json),
    }
}

/// Names the arguments that chose tables which could not be built.
fn benchmark_failure(error: benchmarks::Error) -> Failure {
    match error {
        benchmarks::Error::Cpu(error) => engine::failure(error),
        benchmarks::Error::Device(error) => device::failure(error),
        error => error.into(),
    }
}
