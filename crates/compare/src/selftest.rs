//! `lowroad selftest`: the instruments measured against known answers on this machine.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use experiment::selftest::{self, Check};

use crate::stop;

/// Check the instruments live: A/A, injected delay and loss, probe cost, accounting, generators.
///
/// Examples:
///   sudo lowroad selftest --quick
///   sudo lowroad selftest --only delay,loss
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Fewer repetitions
    #[arg(long)]
    quick: bool,
    /// Only these checks
    #[arg(long, value_delimiter = ',', value_name = "A,B", value_parser = clap::builder::PossibleValuesParser::new(selftest::NAMES))]
    only: Vec<String>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[expect(clippy::print_stdout, reason = "the checks are the result")]
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    crate::need_root("selftest")?;
    let stop = stop::catch()?;
    let mut checks: Vec<Check> = Vec::new();
    for name in selftest::NAMES {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        for check in selftest::run(name, arguments.quick, &stop)? {
            if !arguments.json {
                let mark = if check.passed { "pass" } else { "FAIL" };
                println!(
                    "{mark}  {:<44} {:<26} goal {}",
                    check.name, check.measured, check.goal
                );
            }
            checks.push(check);
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&checks)?);
    }
    if checks.iter().all(|check| check.passed) {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}
