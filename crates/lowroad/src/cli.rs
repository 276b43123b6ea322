//! The arguments, in one definition: parsing, help, completions and man pages come from it.

use std::path::PathBuf;

use arguments::{Comparison, Verbosity};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::{doctor, features, netbench, relay, replicate, router};

/// What `lowroad` alone prints: three groups, an example each.
pub(crate) const OVERVIEW: &str = "\
lowroad relay | features | router | replicate | netbench  jobs: a stream to many receivers; packets to flows; routes and
                                                          rules; what programs do to files; what a path costs
    sudo lowroad relay serve --config relay.toml
lowroad compare | report | selftest | demo | clean        comparison: what each datapath costs
    sudo lowroad compare relay-delay --quick
lowroad doctor                                            what this machine can run
    sudo lowroad doctor

lowroad COMMAND --help says more.
";

/// Runs packet work on the road that costs least, and measures what each road costs.
#[derive(Debug, Parser)]
#[command(name = "lowroad", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One stream in, many receivers out
    Relay(Box<relay::Arguments>),
    /// Packets to flow features for machine learning
    Features(Box<features::Arguments>),
    /// Longest-prefix match and firewall, from the tables you have
    Router(Box<router::Arguments>),
    /// Record what a program does to its files
    Replicate(replicate::Arguments),
    /// Measure what a network path costs: throughput, transactions, loss
    Netbench(Box<netbench::Arguments>),
    /// List what this machine can run, and how to get what it cannot
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
