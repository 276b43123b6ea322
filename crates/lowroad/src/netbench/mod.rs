//! The verbs of `lowroad netbench`.

mod box_plot;
mod help;
mod live_view;
mod run;
mod serve;
mod text;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Measure what a network path costs: throughput, transactions, loss
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowroad netbench serve --listen 0.0.0.0:7411 --token-file token
  lowroad netbench run server.example --test tcp_rr,udp_rr --duration 10s --token-file token")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server, until SIGINT or SIGTERM
    Serve(serve::Serve),
    /// Run tests against a server
    Run(Box<run::Run>),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Serve(serve) => serve.run(arguments.json),
        Verb::Run(run) => run.run(arguments.json),
    }
}

/// The token from its file.
fn token(file: Option<&std::path::Path>) -> Result<Option<netbench::Token>, Failure> {
    Ok(file.map(netbench::Token::read).transpose()?)
}
