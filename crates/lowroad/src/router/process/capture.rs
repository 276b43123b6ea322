//! A capture, once: what would become of its packets, and those that would be forwarded as a new one.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use control::shutdown::Shutdown;
use packet::pcap::{Block, ETHERNET, Reader, Writer};
use router::engine::{Decision, Processor, Verdict, Worker};
use router::rewrite;

use super::measure::Measured;
use super::memory::pin;
use super::subject::Subject;
use super::told::{About, Told, Written, met};
use super::{Given, Process};
use crate::exit::Failure;
use crate::features::pcap;

/// Forwarded packets as a capture.
struct Out<'a> {
    path: &'a Path,
    writer: Writer<BufWriter<File>>,
    written: Written,
    frame: Vec<u8>,
}

impl Process {
    pub(super) fn pcap<E: Subject>(
        &self,
        given: Given,
        mut about: About,
        shutdown: &Shutdown,
        engine: impl FnOnce(Given) -> Result<E, Failure>,
    ) -> Result<Told, Failure> {
        let path = self.capture.as_deref().unwrap_or_else(|| Path::new("-"));
        let name = path.display();
        let broken = |error| Failure::Input(format!("{name}: {error}"));
        let cpus = self.cpus()?;
        let rules = given.contents.rules.clone();
        let tables = engine(given)?;
        about.bytes = tables.bytes();
        let mut threads = Vec::new();
        for cpu in cpus {
            let lookup = tables.processor(about.function);
            let lookup = lookup.map_err(|error| anyhow!(error))?;
            threads.push(Thread::new(lookup, cpu, about.batch));
        }
        let mut reader = Reader::new(pcap::open(path)?).map_err(broken)?;
        let mut out = self.out.as_deref().map(Out::create).transpose()?;
        let (mut block, mut others) = (Block::new(), 0);
        while !shutdown.wait(Duration::ZERO) && reader.read_block(&mut block).map_err(broken)? {
            others += share(&block, &mut threads)?;
            let decided = threads.iter().flat_map(|thread| &thread.decided);
            let ethernet = block.frames().filter(|frame| frame.link_type == ETHERNET);
            if let Some(out) = &mut out {
                for (frame, decision) in ethernet.zip(decided) {
                    out.write(frame.timestamp_ns, frame.bytes, *decision)?;
                }
            }
        }
        if others > 0 {
            tracing::warn!("{name}: {others} frames of other link types are left out");
        }
        let written = out.map(Out::finish).transpose()?;
        let threads = threads.into_iter().map(Thread::measured).collect();
        Ok(Told {
            about,
            from: name.to_string(),
            threads,
            written,
            exchanged: None,
            rules: met(&rules, &tables),
            changed: None,
            fallen: tables.fallen(),
            timeline: None,
        })
    }
}

/// Each thread decides about its part of a block; how many of its frames are not Ethernet's.
fn share<P: Processor>(block: &Block, threads: &mut [Thread<P>]) -> Result<u64, Failure> {
    let count = threads.len();
    let frames: Vec<&[u8]> = (0..block.len())
        .filter_map(|at| block.get(at))
        .filter(|frame| frame.link_type == ETHERNET)
        .map(|frame| frame.bytes)
        .collect();
    let part = |number: usize| frames.len() * number / count..frames.len() * (number + 1) / count;
    match threads {
        [one] => Ok(one.decide(&frames)),
        several => thread::scope(|scope| {
            let running: Vec<_> = several
                .iter_mut()
                .enumerate()
                .map(|(number, thread)| {
                    let frames = &frames[part(number)];
                    scope.spawn(move || {
                        pin(thread.cpu);
                        thread.decide(frames)
                    })
                })
                .collect();
            let joined = running.into_iter().map(thread::ScopedJoinHandle::join);
            // All of them, and then the first error.
            let decided: Result<Vec<_>, _> = joined.collect();
            decided.map(|decided| decided.into_iter().collect())
        }),
    }
    .map_err(|_| anyhow!("a thread panicked"))?
    .map_err(|error| anyhow!(error))?;
    Ok((block.len() - frames.len()) as u64)
}

struct Thread<P> {
    worker: Worker<P>,
    cpu: usize,
    batch: usize,
    measured: Measured,
    /// About its part of the last block.
    decided: Vec<Decision>,
}

impl<P: Processor> Thread<P> {
    fn new(lookup: P, cpu: usize, batch: usize) -> Self {
        Self {
            worker: Worker::new(lookup, batch),
            cpu,
            batch,
            measured: Measured::default(),
            decided: Vec::new(),
        }
    }

    fn decide(&mut self, frames: &[&[u8]]) -> Result<(), P::Error> {
        self.decided.clear();
        let began = Instant::now();
        for batch in frames.chunks(self.batch) {
            let stages = self.worker.decide(batch.iter().copied())?;
            self.measured.batch(&stages, stages.scattered);
            self.decided.extend_from_slice(self.worker.decisions());
        }
        // Reading and writing files is not among it.
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.measured.elapsed_ns += took;
        Ok(())
    }

    fn measured(self) -> Measured {
        Measured {
            counters: *self.worker.counters(),
            ..self.measured
        }
    }
}

impl<'a> Out<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let failed = |error| Failure::Input(format!("{}: {error}", path.display()));
        let file = File::create(path).map_err(failed)?;
        Ok(Self {
            path,
            writer: Writer::new(BufWriter::new(file), ETHERNET).map_err(failed)?,
            written: Written::default(),
            frame: Vec::new(),
        })
    }

    fn write(&mut self, time_ns: i64, frame: &[u8], decision: Decision) -> Result<(), Failure> {
        if decision.verdict() != Verdict::Forward {
            return Ok(());
        }
        self.frame.clear();
        self.frame.extend_from_slice(frame);
        if rewrite::decrement_ttl(&mut self.frame).is_err() {
            self.written.expired += 1;
            return Ok(());
        }
        self.written.packets += 1;
        let written = self.writer.write(time_ns, &self.frame);
        written.map_err(|error| self.failed(&error))
    }

    fn finish(self) -> Result<Written, Failure> {
        let (path, written) = (self.path, self.written);
        let finished = self.writer.finish();
        finished.map_err(|error| anyhow!("{}: {error}", path.display()))?;
        Ok(written)
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::Failed(anyhow!("{}: {error}", self.path.display()))
    }
}
