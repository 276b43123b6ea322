//! The arguments, in one definition: parsing, help, completions and man pages come from it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::{doctor, relay};

/// What `lowroad` alone prints: three groups, an example each.
pub(crate) const OVERVIEW: &str = "\
lowroad relay                                       jobs: one stream in, many receivers out
    sudo lowroad relay serve --config relay.toml
lowroad compare | report | selftest | demo | clean  comparison: what each datapath costs
    sudo lowroad compare relay-delay --quick
lowroad doctor                                      what this machine can run
    sudo lowroad doctor

lowroad COMMAND --help says more.
";

/// Runs packet work on the road that costs least, and measures what each road costs.
#[derive(Debug, Parser)]
#[command(name = "lowroad", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Say more on standard error; repeat for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One stream in, many receivers out
    Relay(Box<relay::Arguments>),
    /// List what this machine can run, and how to get what it cannot
    Doctor(doctor::Arguments),
    /// Run an experiment: every datapath under the same conditions
    Compare(Passed),
    /// Render a run's record again, or compare two runs
    Report(Passed),
    /// Check the instruments: no false differences, injected delay and loss recovered
    Selftest(Passed),
    /// Compare the jobs that exist, briefly, and write one report
    Demo(Passed),
    /// Remove what an interrupted experiment left behind
    Clean(Passed),
    /// Print a shell's completion script
    Completions { shell: Shell },
    /// Write the man pages
    Man {
        /// Folder to write to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Everything after the verb, which lowroad-compare reads.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) arguments: Vec<OsString>,
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
