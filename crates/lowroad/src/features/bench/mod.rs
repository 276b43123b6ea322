//! `lowroad features bench`: what a packet costs on this machine, for each schema and for each program
//! of the kernel. It measures this program alone: experiments compare it with others.

mod arms;
mod frames;
mod told;

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use features::kernel::Subject;
use features::pcap::Progress;
use features::schema::{SCHEMAS, Schema};

use super::extraction::Extraction;
use super::schema;
use crate::exit::{self, Failure};
use arms::Arm;
use frames::Frames;

#[derive(Debug, Args)]
#[command(
    after_help = "It says nothing about other programs: lowroad compare features-pcap-peers does."
)]
pub(super) struct Bench {
    /// A pcap or pcapng file; without one, packets of thousands of conversations are made up
    capture: Option<PathBuf>,
    /// At most so many packets
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    packets: u32,
    /// Each is measured so often, in turns
    #[arg(long, value_name = "N", default_value = "10")]
    rounds: NonZeroUsize,
    /// With another number, other packets are made up
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        conflicts_with = "capture"
    )]
    seed: u64,
    /// Only these schemas and what --program names, by default all
    #[arg(long, value_name = "SCHEMA", value_delimiter = ',')]
    schema: Vec<String>,
    /// Only these programs of the kernel and what --schema names: xdp-ringbuf, xdp-flow, tc-flow, af-xdp,
    /// fanout (which shares frames among the workers of recv and tpacket), by default all
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_parser = program)]
    program: Vec<Subject>,
    #[command(flatten)]
    extraction: Extraction,
}

impl Bench {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let mut arms = self.arms()?;
        let frames = match &self.capture {
            Some(path) => Frames::read(path, self.packets)?,
            None => Frames::made(self.packets, self.seed)?,
        };
        let progress = Progress::default();
        let measured = thread::scope(|scope| {
            let (arms, frames, progress) = (&mut arms, &frames, &progress);
            let measuring = scope.spawn(move || self.measure(arms, frames, progress));
            while !measuring.is_finished() {
                if shutdown.wait(Duration::from_millis(100)) {
                    progress.stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
            measuring.join()
        });
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let measured = measured.map_err(|_| anyhow!("measuring panicked"))?;
        if arms.iter().all(Arm::is_unmeasured) {
            return measured.and_then(|()| Err(nothing(arms, &progress)));
        }
        exit::print(&if json {
            told::json(&arms, &frames)
        } else {
            told::text(&arms, &frames)
        })?;
        measured
    }

    /// What is to be measured.
    fn arms(&self) -> Result<Vec<Arm>, Failure> {
        let all = self.schema.is_empty() && self.program.is_empty();
        let schemas: Vec<&'static Schema> = if all {
            SCHEMAS.iter().collect()
        } else {
            let named = self.schema.iter().map(|name| schema::find(name));
            named.collect::<Result<_, _>>()?
        };
        let mut arms = Vec::new();
        for schema in &schemas {
            arms.push(Arm::rows(schema, self.extraction.options(schema, None)?));
        }
        let subjects = if all {
            &Subject::ALL[..]
        } else {
            &self.program[..]
        };
        if !subjects.is_empty() {
            // What schemas refuse is about rows, of which a program makes none.
            let options = self
                .extraction
                .options(schemas.first().unwrap_or(&&SCHEMAS[0]), None)?;
            let floor = (!subjects.contains(&Subject::Empty)).then_some(Subject::Empty);
            let subjects = floor.iter().chain(subjects);
            arms.extend(subjects.map(|subject| Arm::program(*subject, &options)));
        }
        Ok(arms)
    }

    /// Each arm once in every round, until the rounds are over or somebody stops it.
    fn measure(
        &self,
        arms: &mut [Arm],
        frames: &Frames,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let rounds = self.rounds.get();
        for round in 0..rounds {
            for at in 0..arms.len() {
                // Each round begins with another one: none always follows the same.
                let arm = &mut arms[(at + round) % arms.len()];
                show(arm.name(), at, round, rounds, started);
                arm.measure(frames, progress)?;
                if progress.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn program(name: &str) -> Result<Subject, String> {
    let subject = Subject::ALL.into_iter().find(|one| one.name() == name);
    subject.ok_or_else(|| {
        let names = Subject::ALL.map(Subject::name).join(", ");
        format!("there are {names}")
    })
}

/// Why there is no result.
fn nothing(arms: Vec<Arm>, progress: &Progress) -> Failure {
    if progress.stop.load(Ordering::Relaxed) {
        return Failure::Failed(anyhow!("stopped before anything was measured"));
    }
    Failure::Missing(arms.into_iter().filter_map(Arm::missing).collect())
}

/// A line that is written over on a terminal, else one for each round.
fn show(name: &str, at: usize, round: usize, rounds: usize, started: Instant) {
    let (round, elapsed) = (round + 1, started.elapsed().as_secs_f64());
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[Kround {round}/{rounds}  {name}  {elapsed:.0} s");
    } else if at == 0 {
        eprintln!("round {round}/{rounds}  {elapsed:.0} s");
    }
}
