//! The verbs of `lowroad features`.

mod account;
mod bench;
mod extraction;
mod interfaces;
mod live;
mod metrics;
mod model;
mod model_counters;
mod models;
mod output;
mod pcap;
mod recording;
mod schema;
mod score;
mod selection;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Extract flow features for machine learning from packets
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowroad features pcap capture.pcapng -o flows.parquet
  sudo lowroad features live eth0 --datapath xdp-flow --schema cic.v1 -o flows.parquet")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read a capture and write a row for each flow
    Pcap(Box<pcap::Pcap>),
    /// Capture from an interface and write a row for each flow
    Live(Box<live::Live>),
    /// Write rows with the scores of a model
    Score(Box<score::Score>),
    /// Check, print or compile models
    #[command(subcommand)]
    Model(model::Verb),
    /// List the network interfaces, and which datapaths can run on each
    Interfaces(interfaces::Interfaces),
    /// Measure the cost of a packet, for each schema and each program of the kernel
    Bench(Box<bench::Bench>),
    /// List the schemas, or a schema's columns with units and definitions
    Schema { name: Option<String> },
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Pcap(pcap) => pcap.run(arguments.json),
        Verb::Live(live) => live.run(arguments.json),
        Verb::Score(score) => score.run(arguments.json),
        Verb::Model(model) => model.run(arguments.json),
        Verb::Interfaces(interfaces) => interfaces.run(arguments.json),
        Verb::Bench(bench) => bench.run(arguments.json),
        Verb::Schema { name: None } => schema::list(arguments.json),
        Verb::Schema { name: Some(name) } => schema::describe(schema::find(&name)?, arguments.json),
    }
}
