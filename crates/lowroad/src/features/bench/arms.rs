//! What is measured, and its measurements.

use std::sync::atomic::Ordering;
use std::time::Instant;

use datapath::{Error, Missing};
use features::Options;
use features::kernel::{Subject, Timed, Trial};
use features::live::datapaths;
use features::pcap::{Progress, Run};
use features::schema::Schema;
use features::sink::Nowhere;
use packet::pcap::{Block, ETHERNET, Reader};
use sys::{clock, sched};

use super::frames::Frames;
use crate::exit::Failure;

/// Something that every packet goes through.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) what: What,
    pub(super) rounds: Vec<Round>,
    /// Of one round.
    pub(super) rows: u64,
    /// Why it is not measured here.
    pub(super) missing: Option<Missing>,
}

#[derive(Debug)]
pub(super) enum What {
    /// Packets to rows of a schema.
    Rows(Run),
    Program(Subject, Options),
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) packets: u64,
    /// CPU time, which others on the machine do not add to.
    pub(super) cpu_ns: u64,
    /// Time that passed.
    pub(super) wall_ns: u64,
}

impl Arm {
    pub(super) fn rows(schema: &'static Schema, options: Options) -> Self {
        Self::new(What::Rows(Run { options, schema }), None)
    }

    /// With what a datapath with programs in the kernel lacks here.
    pub(super) fn program(subject: Subject, options: &Options) -> Self {
        let all = datapaths();
        let named = |name| all.iter().find(|datapath| datapath.name() == name);
        let datapath = named(subject.name()).or_else(|| named(Subject::XdpFlow.name()));
        let missing = datapath.and_then(|datapath| datapath.check().err());
        Self::new(What::Program(subject, options.clone()), missing)
    }

    fn new(what: What, missing: Option<Missing>) -> Self {
        Self {
            what,
            rounds: Vec::new(),
            rows: 0,
            missing,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match &self.what {
            What::Rows(run) => run.schema.name,
            What::Program(subject, _) => subject.name(),
        }
    }

    pub(super) fn is_unmeasured(&self) -> bool {
        self.rounds.is_empty()
    }

    pub(super) fn missing(self) -> Option<(String, Missing)> {
        let name = self.name().to_owned();
        self.missing.map(|missing| (name, missing))
    }

    /// Another round, unless it cannot run here or is stopped.
    pub(super) fn measure(&mut self, frames: &Frames, progress: &Progress) -> Result<(), Failure> {
        if self.missing.is_some() {
            return Ok(());
        }
        let round = match &self.what {
            What::Rows(run) => {
                let (round, rows) = rows(run, frames, progress)?;
                self.rows = rows;
                round
            }
            What::Program(..) if frames.link_type != ETHERNET => {
                let what = "the capture's frames are no Ethernet frames, and the kernel's are";
                self.missing = Some(Missing::new(what, ""));
                return Ok(());
            }
            What::Program(subject, options) => match run(*subject, options, frames, progress) {
                Ok(timed) => Round {
                    packets: timed.runs,
                    cpu_ns: timed.ns,
                    wall_ns: timed.ns,
                },
                Err(Error::Missing(missing)) => {
                    self.missing = Some(missing);
                    return Ok(());
                }
                Err(Error::Plan(what)) => {
                    let name = subject.name();
                    let remedy = "choose what to measure by --schema and --program";
                    return Err(Failure::Input(format!("{name}: {what}; {remedy}")));
                }
                Err(error) => return Err(error.into()),
            },
        };
        if !progress.stop.load(Ordering::Relaxed) {
            self.rounds.push(round);
        }
        Ok(())
    }
}

/// Reads the capture as `features pcap` does, up to whole batches of rows, which nobody takes.
fn rows(run: &Run, frames: &Frames, progress: &Progress) -> Result<(Round, u64), Failure> {
    let (wall, cpu_ns) = (Instant::now(), clock::thread_cpu_ns());
    let summary = run.run(frames.capture.as_slice(), Box::new(Nowhere), progress);
    let cpu_ns = clock::thread_cpu_ns() - cpu_ns;
    let wall_ns = u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let checked = summary.check();
    checked.map_err(|fault| Failure::Input(format!("{}: {fault}", frames.from)))?;
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
) -> Result<Timed, Error> {
    let no_cpu = |error| Error::failed("staying on one CPU", error);
    let cpus = sched::allowed_cpus().map_err(no_cpu)?;
    // The first is where most devices interrupt.
    let cpu = cpus.last().copied().unwrap_or(0);
    sched::on_cpu(cpu, || {
        let mut trial = Trial::load(subject, options)?;
        let unreadable = |error| Error::failed("reading what is in memory", error);
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
