//! What is measured, and the measurements.

use std::sync::atomic::Ordering;
use std::time::Instant;

use datapath::Missing;
use features::Options;
use features::kernel::{RunTime, Subject, Trial};
use features::live::datapaths;
use features::pcap::{Progress, Run};
use features::schema::Schema;
use features::sink::Nowhere;
use packet::pcap::{Block, ETHERNET, Reader};
use sys::{clock, sched};

use super::frames::Frames;
use crate::Error;

/// A schema or a program, and its measurements.
#[derive(Debug)]
pub struct Arm {
    pub kind: ArmKind,
    pub rounds: Vec<Round>,
    /// Rows of one round.
    pub rows: u64,
    /// Why it cannot be measured here.
    pub missing: Option<Missing>,
}

/// What an arm does with each packet.
#[derive(Debug)]
pub enum ArmKind {
    /// Makes rows of a schema.
    Rows(Run),
    /// Runs a program of the kernel.
    Program(Subject, Options),
}

/// The measurement of one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub packets: u64,
    /// CPU time, which does not depend on other processes.
    pub cpu_ns: u64,
    /// Elapsed time.
    pub wall_ns: u64,
}

impl Arm {
    pub fn rows(schema: &'static Schema, options: Options) -> Self {
        Self::new(ArmKind::Rows(Run { options, schema }), None)
    }

    /// A program, with what this machine lacks for a datapath with such programs.
    pub fn program(subject: Subject, options: &Options) -> Self {
        let all = datapaths();
        let named = |name| all.iter().find(|datapath| datapath.name() == name);
        let datapath = named(subject.name()).or_else(|| named(Subject::XdpFlow.name()));
        let missing = datapath.and_then(|datapath| datapath.check().err());
        Self::new(ArmKind::Program(subject, options.clone()), missing)
    }

    fn new(kind: ArmKind, missing: Option<Missing>) -> Self {
        Self {
            kind,
            rounds: Vec::new(),
            rows: 0,
            missing,
        }
    }

    pub fn name(&self) -> &'static str {
        match &self.kind {
            ArmKind::Rows(run) => run.schema.name,
            ArmKind::Program(subject, _) => subject.name(),
        }
    }

    pub fn is_unmeasured(&self) -> bool {
        self.rounds.is_empty()
    }

    pub(super) fn missing(&self) -> Option<(String, Missing)> {
        let missing = self.missing.clone()?;
        Some((self.name().to_owned(), missing))
    }

    /// Measures another round, unless it cannot run here or is stopped.
    pub(super) fn measure(&mut self, frames: &Frames, progress: &Progress) -> Result<(), Error> {
        if self.missing.is_some() {
            return Ok(());
        }
        let round = match &self.kind {
            ArmKind::Rows(run) => {
                let (round, rows) = rows(run, frames, progress)?;
                self.rows = rows;
                round
            }
            ArmKind::Program(..) if frames.link_type != ETHERNET => {
                let what =
                    "the capture has no Ethernet frames, and the kernel's programs need them";
                self.missing = Some(Missing::new(what, ""));
                return Ok(());
            }
            ArmKind::Program(subject, options) => match run(*subject, options, frames, progress) {
                Ok(timed) => Round {
                    packets: timed.runs,
                    cpu_ns: timed.ns,
                    wall_ns: timed.ns,
                },
                Err(datapath::Error::Missing(missing)) => {
                    self.missing = Some(missing);
                    return Ok(());
                }
                Err(datapath::Error::Plan(what)) => {
                    let name = subject.name();
                    let remedy = "choose what to measure by --schema and --program";
                    return Err(Error::Input(format!("{name}: {what}; {remedy}")));
                }
                Err(error) => return Err(Error::failed(error)),
            },
        };
        if !progress.stop.load(Ordering::Relaxed) {
            self.rounds.push(round);
        }
        Ok(())
    }
}

/// Reads the capture as `features pcap` does, and discards the rows.
fn rows(run: &Run, frames: &Frames, progress: &Progress) -> Result<(Round, u64), Error> {
    let (wall, cpu_ns) = (Instant::now(), clock::thread_cpu_ns());
    let summary = run.run(frames.capture.as_slice(), Box::new(Nowhere), progress);
    let cpu_ns = clock::thread_cpu_ns() - cpu_ns;
    let wall_ns = u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let checked = summary.check();
    checked.map_err(|fault| Error::Input(format!("{}: {fault}", frames.from)))?;
    let round = Round {
        packets: summary.counters.seen.packets,
        cpu_ns,
        wall_ns,
    };
    Ok((round, summary.rows))
}

/// Runs a program on every frame, on one CPU.
fn run(
    subject: Subject,
    options: &Options,
    frames: &Frames,
    progress: &Progress,
) -> Result<RunTime, datapath::Error> {
    let no_cpu = |error| datapath::Error::failed("staying on one CPU", error);
    let cpus = sched::allowed_cpus().map_err(no_cpu)?;
    // Most devices interrupt the first CPU.
    let cpu = cpus.last().copied().unwrap_or(0);
    sched::on_cpu(cpu, || {
        let mut trial = Trial::load(subject, options)?;
        let unreadable = |error| datapath::Error::failed("reading what is in memory", error);
        let mut reader = Reader::new(frames.capture.as_slice()).map_err(unreadable)?;
        let mut block = Block::new();
        while reader.read_block(&mut block).map_err(unreadable)? {
            for frame in block.frames() {
                trial.frame(&frame)?;
            }
            if progress.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        trial.finish()
    })
    .map_err(no_cpu)?
}
