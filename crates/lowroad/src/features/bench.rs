//! `lowroad features bench`: what a packet costs on this machine, for each schema and for each program of the
//! kernel.

mod output;

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use benchmarks::features::{self as benchmark, Arm, Frames, Pass};
use clap::Args;
use features::kernel::Subject;
use features::schema::{SCHEMAS, Schema};
use process::shutdown::Shutdown;

use super::extraction::Extraction;
use super::schema;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
#[command(
    after_help = "This measures lowroad alone; use lowroad compare features-pcap-peers for other programs."
)]
pub(super) struct Bench {
    /// A pcap or pcapng file [default: generated packets of thousands of conversations]
    capture: Option<PathBuf>,
    /// Use at most N packets
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    packets: u32,
    /// Measure each N times, in turn
    #[arg(long, value_name = "N", default_value = "10")]
    rounds: NonZeroUsize,
    /// Random seed: change it to generate other packets
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        conflicts_with = "capture"
    )]
    seed: u64,
    /// Measure only these schemas and the programs of --program [default: all]
    #[arg(long, value_name = "SCHEMA", value_delimiter = ',')]
    schema: Vec<String>,
    /// Measure only these programs of the kernel and the schemas of --schema: xdp-ringbuf, xdp-flow,
    /// tc-flow, af-xdp, fanout (which shares frames among the workers of recv and tpacket) [default: all]
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_parser = program)]
    program: Vec<Subject>,
    #[command(flatten)]
    extraction: Extraction,
}

impl Bench {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().context("signals")?;
        let mut arms = self.arms()?;
        let frames = match &self.capture {
            Some(path) => Frames::read(path, self.packets)?,
            None => Frames::generate(self.packets, self.seed)?,
        };
        let measured = benchmark::run(&mut arms, &frames, self.rounds, &shutdown, &show);
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        // Results from before an error are printed as well.
        if !arms.iter().all(Arm::is_unmeasured) {
            exit::print(&if json {
                output::json(&arms, &frames)
            } else {
                output::text(&arms, &frames)
            })?;
        }
        Ok(measured?)
    }

    /// The arms to measure.
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
            // A program makes no rows, so what its schema refuses does not matter.
            let options = self
                .extraction
                .options(schemas.first().unwrap_or(&&SCHEMAS[0]), None)?;
            let floor = (!subjects.contains(&Subject::Empty)).then_some(Subject::Empty);
            let subjects = floor.iter().chain(subjects);
            arms.extend(subjects.map(|subject| Arm::program(*subject, &options)));
        }
        Ok(arms)
    }
}

fn program(name: &str) -> Result<Subject, String> {
    let subject = Subject::ALL.into_iter().find(|one| one.name() == name);
    subject.ok_or_else(|| {
        let names = Subject::ALL.map(Subject::name).join(", ");
        format!("there are {names}")
    })
}

/// A line that is overwritten on a terminal, otherwise a line for each round.
fn show(pass: Pass) {
    let (round, rounds, elapsed) = (pass.round, pass.rounds, pass.elapsed.as_secs_f64());
    if io::stderr().is_terminal() {
        let name = pass.arm;
        eprint!("\r\x1b[Kround {round}/{rounds}  {name}  {elapsed:.0} s");
    } else if pass.first {
        eprintln!("round {round}/{rounds}  {elapsed:.0} s");
    }
}
