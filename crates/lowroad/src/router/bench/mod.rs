//! `lowroad router bench`: which engine suits these routes and rules on this machine. It measures
//! this program alone: experiments compare it with others.

pub(super) mod group;
mod plot;
mod subjects;
pub(super) mod told;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Instant;
use std::{fs, iter};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use router::random::Random;

use super::engine::Made;
use super::inputs::Inputs;
use crate::exit::{self, Failure};
use group::Group;

#[derive(Debug, Args)]
#[command(
    after_help = "Every engine looks up the same keys in every round, in random order; answers are checked."
)]
pub(super) struct Bench {
    /// A table image, in place of --rib and --rules
    image: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    /// Fewer keys and rounds
    #[arg(long)]
    quick: bool,
    /// Each engine looks up the keys so often, in turns [default: 20, with --quick 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(6..=1000))]
    rounds: Option<u16>,
    /// Keys of each pattern [default: 1048576, with --quick 131072]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=67_108_864))]
    keys: Option<u32>,
    /// Keys that are looked up together
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// With another number, other keys are drawn, in another order
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Write the figures as an SVG image, too
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// How keys are drawn and looked up.
#[derive(Clone, Copy, Debug)]
struct Keys {
    count: usize,
    batch: usize,
    seed: u64,
}

impl Bench {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let contents = Made::of(self.image.as_deref(), &self.inputs)?.contents;
        let keys = Keys {
            count: self
                .keys
                .unwrap_or(if self.quick { 1 << 17 } else { 1 << 20 }) as usize,
            batch: self.batch as usize,
            seed: self.seed,
        };
        let rounds = self.rounds.unwrap_or(if self.quick { 10 } else { 20 });
        // A figure of one thread that moves between CPUs is nobody's.
        let cpus = sys::sched::allowed_cpus().map_err(|error| anyhow!("CPUs: {error}"))?;
        let cpu = cpus.last().copied().unwrap_or(0);
        let measured = sys::sched::on_cpu(cpu, || {
            let mut groups = subjects::all(&contents, keys)?;
            measure(&mut groups, rounds, self.seed, &shutdown);
            Ok::<_, Failure>(groups)
        });
        let groups = measured.map_err(|error| anyhow!("staying on CPU {cpu}: {error}"))??;
        if groups.iter().all(Group::is_unmeasured) {
            return Err(Failure::Failed(anyhow!(
                "stopped before anything was measured"
            )));
        }
        if let Some(path) = &self.plot {
            let written = fs::write(path, plot::svg(&groups));
            written.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        }
        exit::print(&if json {
            told::json(&groups, keys)
        } else {
            told::text(&groups, keys)
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

/// Every arm with every pattern once a round, in random order, and each group's first arm again.
pub(super) fn measure(groups: &mut [Group], rounds: u16, seed: u64, shutdown: &Shutdown) {
    let mut random = Random::new(seed);
    let started = Instant::now();
    for round in 1..=rounds {
        show(round, rounds, started);
        let mut passes: Vec<(usize, usize, usize)> = groups
            .iter()
            .enumerate()
            .flat_map(|(at, group)| iter::repeat(at).zip(group.passes()))
            .map(|(at, (arm, pattern))| (at, arm, pattern))
            .collect();
        random.shuffle(&mut passes);
        for (at, arm, pattern) in passes {
            groups[at].pass(arm, pattern);
            if shutdown.requested() {
                groups.iter_mut().for_each(Group::whole_rounds);
                break;
            }
        }
        if shutdown.requested() {
            break;
        }
    }
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// A line that is written over on a terminal, else one for each round.
fn show(round: u16, rounds: u16, started: Instant) {
    let elapsed = started.elapsed().as_secs_f64();
    let left = elapsed / f64::from(round.max(2) - 1) * f64::from(rounds - round + 1);
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[Kround {round}/{rounds}  {elapsed:.0} s, {left:.0} s left");
    } else {
        eprintln!("round {round}/{rounds}  {elapsed:.0} s");
    }
}
