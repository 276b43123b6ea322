//! `lowroad compare`: runs one experiment and reports it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use experiment::plan::Plan;
use experiment::{End, Options};

use crate::progress::{Progress, span};
use crate::{BadInput, report, stop};

/// Run an experiment: its datapaths side by side, in randomised blocks.
///
/// Examples:
///   sudo lowroad compare relay-delay --quick
///   sudo lowroad compare relay-throughput --out results --arms tc,xdp,mmsg
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// An experiment's name, or a TOML file
    #[arg(required_unless_present = "list")]
    pub(crate) experiment: Option<String>,
    /// Where the record and the report go [default: lowroad-EXPERIMENT-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Fewer blocks, arms and loads: a look, not a result to quote
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these arms
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) arms: Vec<String>,
    /// How many blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) blocks: Option<u16>,
    /// Seed of the random order
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Continue the record in --out
    #[arg(long)]
    pub(crate) resume: bool,
    /// List the experiments and how long they take
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the summary as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        return list(arguments.json);
    }
    let name = arguments.experiment.as_deref().unwrap_or_default();
    let plan = Plan::find(name)
        .and_then(|plan| {
            plan.narrowed(
                arguments.quick,
                &arguments.arms,
                arguments.blocks.map(usize::from),
            )
        })
        .map_err(|error| BadInput(format!("{error:#}")))?;
    crate::need_root(&format!("compare {name}"))?;
    let folder = arguments
        .out
        .clone()
        .unwrap_or_else(|| default_folder(&plan.name));
    measure(&plan, &folder, arguments)?;
    report::write(&folder, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the plan into `folder`; an interruption keeps what is complete and says how to go on.
#[expect(clippy::print_stderr, reason = "tells the user how to resume")]
pub(crate) fn measure(plan: &Plan, folder: &Path, arguments: &Arguments) -> Result<()> {
    let record = folder.join("record.jsonl");
    if record.exists() && !arguments.resume {
        return Err(BadInput(format!(
            "{} exists; add --resume to continue it, or choose another --out",
            record.display()
        ))
        .into());
    }
    let stop = stop::catch()?;
    let seed = arguments.seed.unwrap_or_else(seed_from_time);
    let options = Options {
        quick: arguments.quick,
        seed,
        resume: arguments.resume,
        command: command(plan, arguments, seed),
        stop: &stop,
    };
    match experiment::run(plan, folder, &options, &mut Progress::new())? {
        End::Complete => Ok(()),
        End::Interrupted { blocks: 0 } => {
            anyhow::bail!("interrupted before the first block was complete; nothing to report")
        }
        End::Interrupted { blocks } => {
            eprintln!(
                "interrupted: {blocks} blocks kept; continue with: {} --out {} --resume",
                options.command,
                folder.display()
            );
            Ok(())
        }
    }
}

/// The command that repeats this run.
fn command(plan: &Plan, arguments: &Arguments, seed: u64) -> String {
    let mut words = vec![format!(
        "sudo lowroad compare {}",
        arguments.experiment.as_deref().unwrap_or(&plan.name)
    )];
    if arguments.quick {
        words.push("--quick".to_owned());
    }
    if !arguments.arms.is_empty() {
        words.push(format!("--arms {}", arguments.arms.join(",")));
    }
    words.extend(arguments.blocks.map(|blocks| format!("--blocks {blocks}")));
    words.push(format!("--seed {seed}"));
    words.join(" ")
}

fn seed_from_time() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |now| u64::from(now.subsec_micros()) + 1)
}

fn default_folder(name: &str) -> PathBuf {
    let stamp = experiment::timestamp();
    let short = stamp[5..16].replace(['-', ':'], "").replace('T', "-");
    PathBuf::from(format!("lowroad-{name}-{short}"))
}

#[expect(clippy::print_stdout, reason = "the list is the result")]
fn list(json: bool) -> Result<ExitCode> {
    let plans = Plan::shipped().context("an experiment that ships is broken")?;
    if json {
        let names: Vec<_> = plans
            .iter()
            .map(|plan| {
                serde_json::json!({
                    "name": plan.name, "about": plan.about, "arms": plan.arms,
                    "seconds": plan.seconds(), "quick_seconds": plan.quick_seconds(),
                })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&names)?);
        return Ok(ExitCode::SUCCESS);
    }
    for plan in plans {
        println!(
            "{:<18} {:>7}   --quick {:>6}   {}",
            plan.name,
            span(plan.seconds()),
            span(plan.quick_seconds()),
            plan.about
        );
    }
    Ok(ExitCode::SUCCESS)
}
