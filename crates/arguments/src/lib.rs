//! The arguments of comparison, in one definition for both binaries: `lowroad` parses, explains and
//! documents them, and `lowroad-compare` acts on them.

mod verbosity;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

pub use verbosity::Verbosity;

/// The groups of checks of `lowroad selftest`, in the order they run.
pub const CHECKS: [&str; 11] = [
    "probe",
    "accounting",
    "generator",
    "delay",
    "loss",
    "environments",
    "neighbour",
    "resolution",
    "claims",
    "aa",
    "aa-round-trips",
];

/// What lowroad-compare does.
#[derive(Debug, Subcommand)]
pub enum Comparison {
    Compare(Compare),
    Report(Report),
    Selftest(Selftest),
    Demo(Demo),
    Clean(Clean),
}

/// Run an experiment: its datapaths side by side, in randomised blocks.
///
/// Examples:
///   sudo lowroad compare relay-delay --quick
///   sudo lowroad compare relay-throughput --out results --arms tc,xdp,mmsg
///   sudo lowroad compare relay-delay --environment oci
///   sudo lowroad compare relay-delay --arm old=old/lowroad --arm new=target/release/lowroad
#[derive(Clone, Debug, Default, Args)]
#[command(verbatim_doc_comment)]
pub struct Compare {
    /// An experiment's name, or a TOML file
    #[arg(required_unless_present = "list")]
    pub experiment: Option<String>,
    /// Where the record and the report go [default: lowroad-EXPERIMENT-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Fewer blocks, arms and loads: a look, not a result to quote
    #[arg(long)]
    pub quick: bool,
    /// Only these arms
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub arms: Vec<String>,
    /// Add an arm: a build of lowroad (PATH or PATH,datapath=ARM), or a program (FILE.toml)
    ///
    /// Builds take the place of the experiment's arms, and the first of them is the baseline. Each runs the experiment's
    /// baseline unless a datapath is named. A program joins the experiment's arms.
    #[arg(long, value_name = "NAME=PATH")]
    pub arm: Vec<String>,
    /// Where the device under test runs [default: the experiment's own, else native]
    #[arg(long, value_name = "ENVIRONMENT")]
    pub environment: Option<String>,
    /// Number of blocks, those of a resumed record included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub blocks: Option<u16>,
    /// Number of times to try a trial that fails; a disturbed trial counts as it is [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    pub attempts: Option<u8>,
    /// Seed of the random order
    #[arg(long)]
    pub seed: Option<u64>,
    /// Continue the record in --out
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Print what would run, what would be skipped and why, and run nothing
    #[arg(long, conflicts_with_all = ["resume", "json"])]
    pub dry_run: bool,
    /// List the experiments and how long they take
    #[arg(long)]
    pub list: bool,
    /// Print the summary as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Write the report of a run again, or put two runs side by side.
///
/// Examples:
///   lowroad report lowroad-relay-delay-1120-1412
///   lowroad report before after
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Report {
    /// The folder of a run
    pub run: PathBuf,
    /// The folder of another run, to put beside it
    pub other: Option<PathBuf>,
    /// Also write every figure as PNG into the run's folder
    #[arg(long, conflicts_with = "other")]
    pub png: bool,
    /// Also write each arm's stack samples as pprof profiles into the run's folder
    #[arg(long, conflicts_with = "other")]
    pub pprof: bool,
    /// Also write the record as a Parquet file
    #[arg(long, value_name = "FILE", conflicts_with = "other")]
    pub parquet: Option<PathBuf>,
    /// Print the summary as JSON on standard output
    #[arg(long, conflicts_with = "other")]
    pub json: bool,
}

/// Check the instruments live: A/A, injected delay and loss, probe cost, accounting, generators.
///
/// Examples:
///   sudo lowroad selftest --quick
///   sudo lowroad selftest --only delay,loss
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Selftest {
    /// Fewer repetitions
    #[arg(long)]
    pub quick: bool,
    /// Only these checks
    #[arg(long, value_delimiter = ',', value_name = "A,B", value_parser = PossibleValuesParser::new(CHECKS))]
    pub only: Vec<String>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// Answer one question of each job on this machine, on one page.
///
/// It needs no other software. An interrupted demo continues where it was. The results of a complete one are kept beside
/// the new ones, in folders with a number.
///
/// Example:
///   sudo lowroad demo --out demo
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Demo {
    /// Where the reports go
    #[arg(long, value_name = "DIR", default_value = "lowroad-demo")]
    pub out: PathBuf,
    /// Seed of the random order
    #[arg(long, default_value_t = 4711)]
    pub seed: u64,
}

/// Remove namespaces, links, containers, filters, processes and temporary folders that a killed run left behind.
#[derive(Debug, Args)]
pub struct Clean {}
