//! The verbs of `lowroad features`.

mod account;
mod extraction;
mod live;
mod metrics;
mod model;
mod models;
mod output;
mod pcap;
mod schema;
mod score;
mod selection;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Packets to flow features for machine learning
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
    /// Write rows with what a model says of them
    Score(Box<score::Score>),
    /// Look at models of trees
    #[command(subcommand)]
    Model(model::Verb),
    /// List the schemas, or a schema's columns with units and definitions
    Schema { name: Option<String> },
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Pcap(pcap) => pcap.run(arguments.json),
        Verb::Live(live) => live.run(arguments.json),
        Verb::Score(score) => score.run(arguments.json),
        Verb::Model(model) => model.run(arguments.json),
        Verb::Schema { name: None } => schema::list(arguments.json),
        Verb::Schema { name: Some(name) } => schema::describe(schema::find(&name)?, arguments.json),
    }
}
