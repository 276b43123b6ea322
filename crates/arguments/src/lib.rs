//! The arguments of comparison, in one definition for both binaries: `lowroad` parses, explains and
//! documents them, and `lowroad-compare` acts on them.

mod verbosity;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

pub use verbosity::Verbosity;

/// The version, with the commit in parentheses where the build knew it.
pub const VERSION: &str = env!("LOWROAD_VERSION");

/// The names of the experiments that ship, separated by commas.
pub const EXPERIMENTS: &str = env!("LOWROAD_EXPERIMENTS");

/// The environments of a comparison's hosts.
pub const ENVIRONMENTS: [&str; 7] = ["native", "oci", "docker", "podman", "vm", "vm-rt", "vm-oci"];

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

/// The commands of lowroad-compare.
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
///   sudo lowroad compare relay-delay --out today --again yesterday
#[derive(Clone, Debug, Default, Args)]
#[command(verbatim_doc_comment)]
pub struct Compare {
    /// Run this experiment: a name that --list prints, or a TOML file
    #[arg(required_unless_present = "list")]
    pub experiment: Option<String>,
    /// Write the record and the report to this folder [default: lowroad-EXPERIMENT-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run fewer blocks, arms and loads: a first look, not a result to quote
    #[arg(long)]
    pub quick: bool,
    /// Run only these arms
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub arms: Vec<String>,
    /// Add an arm: a build of lowroad (PATH or PATH,datapath=ARM), or a program (FILE.toml)
    ///
    /// Builds take the place of the experiment's arms, and the first of them is the baseline. Each runs the experiment's
    /// baseline unless a datapath is named. A program joins the experiment's arms.
    #[arg(long, value_name = "NAME=PATH")]
    pub arm: Vec<String>,
    /// Run the device under test in this environment [default: the experiment's own, else native]
    #[arg(long, value_name = "ENVIRONMENT")]
    pub environment: Option<String>,
    /// Run this many blocks, those of a resumed record included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub blocks: Option<u16>,
    /// Try a failing trial this many times; a disturbed trial counts as it is [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    pub attempts: Option<u8>,
    /// Set the seed of the random order; a resumed record has its own
    #[arg(long)]
    pub seed: Option<u64>,
    /// Continue the record in --out
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Join the run with the one in DIR, of the same experiment at another time: a claim needs both
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub again: Option<PathBuf>,
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

/// Write the report of a run again, or show two runs side by side.
///
/// Examples:
///   lowroad report lowroad-relay-delay-1120-1412
///   lowroad report before after
///   lowroad report today --again yesterday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Report {
    /// Read the run in this folder
    pub run: PathBuf,
    /// Show the run in this folder beside it
    pub other: Option<PathBuf>,
    /// Join the run with the one in DIR, of the same experiment at another time: a claim needs both
    #[arg(long, value_name = "DIR", conflicts_with = "other")]
    pub again: Option<PathBuf>,
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
    /// Run fewer repetitions
    #[arg(long)]
    pub quick: bool,
    /// Run only these checks
    #[arg(long, value_delimiter = ',', value_name = "A,B", value_parser = PossibleValuesParser::new(CHECKS))]
    pub only: Vec<String>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// Answer one question of each job on this machine, on one page.
///
/// The demo needs no other software. An interrupted demo continues where it stopped. The results of a complete demo are
/// kept beside the new ones, in numbered folders.
///
/// Example:
///   sudo lowroad demo --out demo
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Demo {
    /// Write the reports to this folder
    #[arg(long, value_name = "DIR", default_value = "lowroad-demo")]
    pub out: PathBuf,
    /// Set the seed of the random order
    #[arg(long, default_value_t = 4711)]
    pub seed: u64,
}

/// Remove namespaces, links, containers, filters, processes and temporary folders that a killed run left behind.
#[derive(Debug, Args)]
pub struct Clean {}
