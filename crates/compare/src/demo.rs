//! `lowroad demo`: every job that exists, quickly, into one folder.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use experiment::plan::Plan;

use crate::{compare, report};

/// One experiment of each job.
const EXPERIMENTS: &[&str] = &["relay-delay"];

/// Run each job's main experiment at --quick, and report it.
///
/// Example:
///   sudo lowroad demo --out demo
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Where the reports go
    #[arg(long, value_name = "DIR", default_value = "lowroad-demo")]
    out: PathBuf,
    /// Seed of the random order
    #[arg(long, default_value_t = 4711)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    crate::need_root("demo")?;
    for name in EXPERIMENTS {
        let plan = Plan::find(name)?.narrowed(true, &[], None)?;
        let folder = arguments.out.join(name);
        let asked = compare::Arguments {
            experiment: Some((*name).to_owned()),
            out: Some(folder.clone()),
            quick: true,
            arms: Vec::new(),
            blocks: None,
            seed: Some(arguments.seed),
            // A demo that was interrupted goes on where it was.
            resume: folder.join("record.jsonl").exists(),
            list: false,
            json: false,
        };
        compare::measure(&plan, &folder, &asked)?;
        report::write(&folder, false)?;
    }
    Ok(ExitCode::SUCCESS)
}
