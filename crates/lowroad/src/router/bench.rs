//! `lowroad router bench`: how fast each engine looks up these routes and rules on this machine.

pub(super) mod output;
mod plot;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::anyhow;
use benchmarks::router::group::{Group, Progress};
use benchmarks::router::lookup::{self, Keys};
use clap::Args;
use process::shutdown::Shutdown;

use super::inputs::Inputs;
use super::table_source::EngineInput;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
#[command(
    after_help = "Every engine looks up the same keys in every round, in random order; answers are checked."
)]
pub(super) struct Bench {
    /// Table image, in place of --rib and --rules
    image: Option<PathBuf>,
    /// Use fewer keys and rounds
    #[arg(long)]
    quick: bool,
    /// Have each engine look up the keys N times, in turn [default: 20, with --quick 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(6..=1000))]
    rounds: Option<u16>,
    /// Use N keys for each pattern [default: 1048576, with --quick 131072]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=67_108_864))]
    keys: Option<u32>,
    /// Look up N keys together
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// Random seed: change it to draw other keys, in another order
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Write the results as an SVG image, too
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
}

impl Bench {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let contents = EngineInput::load(self.image.as_deref(), &self.inputs)?
            .dataset
            .contents;
        let keys = Keys {
            count: self
                .keys
                .unwrap_or(if self.quick { 1 << 17 } else { 1 << 20 }) as usize,
            batch: self.batch as usize,
            seed: self.seed,
        };
        let rounds = self.rounds.unwrap_or(if self.quick { 10 } else { 20 });
        let groups = lookup::run(&contents, keys, rounds, &shutdown, &mut show)?;
        if let Some(path) = &self.plot {
            let written = fs::write(path, plot::svg(&groups));
            written.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        }
        exit::print(&if json {
            output::json(&groups, keys)
        } else {
            output::text(&groups, keys)
        })?;
        let wrong = groups.iter().map(Group::wrong).sum::<u64>();
        if wrong > 0 {
            return Err(Failure::Failed(anyhow!(
                "{wrong} answers are wrong: please report this"
            )));
        }
        Ok(())
    }
}

/// A line that is overwritten on a terminal, otherwise a line for each round.
pub(super) fn show(progress: Progress) {
    let terminal = io::stderr().is_terminal();
    match progress {
        Progress::Round {
            round,
            rounds,
            elapsed,
        } => {
            let elapsed = elapsed.as_secs_f64();
            if terminal {
                let left = elapsed / f64::from(round.max(2) - 1) * f64::from(rounds - round + 1);
                eprint!("\r\x1b[Kround {round}/{rounds}  {elapsed:.0} s, {left:.0} s left");
            } else {
                eprintln!("round {round}/{rounds}  {elapsed:.0} s");
            }
        }
        Progress::Finished if terminal => eprint!("\r\x1b[K"),
        Progress::Finished => {}
    }
}
