//! How much a binary says on standard error.

use std::io::{IsTerminal, stderr};

use clap::Args;
use tracing_subscriber::filter::LevelFilter;

/// Warnings by default; each `-v` says more.
#[derive(Clone, Copy, Debug, Args)]
pub struct Verbosity {
    /// Log more to standard error; repeat for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Verbosity {
    /// Has this process log to standard error, in colours on a terminal only.
    pub fn log(self) {
        let level = match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(stderr)
            .with_ansi(stderr().is_terminal())
            .with_target(false)
            .finish();
        // Where a test's dependency enables the feature `tracing-log`, `init` would log what dependencies
        // say by the crate `log` as well, and the binary under test would differ from the one that is used.
        tracing::subscriber::set_global_default(subscriber).expect("logging is set up once");
    }
}
