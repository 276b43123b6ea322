//! The definition of the arguments, for parsing, help, completions and man pages.

use std::path::PathBuf;

use arguments::{Comparison, Verbosity};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::{doctor, features, netbench, relay, replicate, router};

/// The output of `lowroad` without arguments: three groups with an example each.
pub(crate) const OVERVIEW: &str = "\
lowroad relay | features | router | replicate | netbench  jobs: a stream to many receivers; packets to flows; routes and
                                                          rules; file changes to replicas; tests of network paths
    sudo lowroad relay serve --config relay.toml
lowroad compare | report | selftest | demo | clean        comparison: the cost of each datapath
    sudo lowroad compare relay-delay --quick
lowroad doctor                                            what this machine can run
    sudo lowroad doctor

Run lowroad COMMAND --help for details.
";

/// Runs packet work on the road that costs least, and measures what each road costs.
#[derive(Debug, Parser)]
#[command(name = "lowroad", version = arguments::VERSION, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Relay streams, each to many receivers
    Relay(Box<relay::Arguments>),
    /// Extract flow features for machine learning from packets
    Features(Box<features::Arguments>),
    /// Route and filter packets by the tables that you have
    Router(Box<router::Arguments>),
    /// Record what a program does to its files
    Replicate(replicate::Arguments),
    /// Measure the throughput, transactions and loss of a network path
    Netbench(Box<netbench::Arguments>),
    /// List what this machine can run, and how to add what is missing
    Doctor(doctor::Arguments),
    #[command(flatten)]
    Comparison(Comparison),
    /// Print a shell's completion script
    Completions { shell: Shell },
    /// Write the man pages
    Man {
        /// Folder to write to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
