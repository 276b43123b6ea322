//! A capture, once: its packets are processed, and those that are forwarded go to a new capture.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use packet::pcap::{self, Block, ETHERNET, Reader, Writer};
use process::shutdown::Shutdown;
use router::engine::{Decision, Processor, Verdict, Worker};
use router::rewrite;

use super::Options;
use super::measurement::Measurement;
use super::report::{CaptureCounts, Report, TableSizes, matched};
use super::targets::Verdicts;
use super::threads::{cpus, pin};
use crate::Error;
use crate::router::Dataset;
use crate::router::engine::MeasuredEngine;

/// Forwarded packets as a capture.
struct Out<'a> {
    path: &'a Path,
    writer: Writer<BufWriter<File>>,
    written: CaptureCounts,
    frame: Vec<u8>,
}

pub(super) fn run<E: MeasuredEngine>(
    (path, out): (&Path, Option<&Path>),
    dataset: Dataset,
    options: &Options,
    shutdown: &Shutdown,
    build: impl FnOnce(Dataset) -> Result<E, Error>,
) -> Result<Report, Error> {
    let name = path.display();
    let broken = |error| Error::file(path, error);
    let cpus = cpus(options.threads)?;
    let sizes = TableSizes::new(&dataset.contents);
    let rules = dataset.contents.rules.clone();
    let verdicts = Verdicts::new(&dataset.targets);
    let tables = build(dataset)?;
    let sizes = sizes.with_bytes(&tables);
    let mut threads = Vec::new();
    for cpu in cpus {
        let processor = tables.processor(options.function);
        let processor = verdicts.processor(processor.map_err(Error::failed)?);
        threads.push(Thread::new(processor, cpu, options.batch));
    }
    let input = pcap::open(path).map_err(|error| Error::file(path, error))?;
    let mut reader = Reader::new(input).map_err(broken)?;
    let mut out = out.map(Out::create).transpose()?;
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
    Ok(Report {
        origin: name.to_string(),
        tables: sizes,
        threads: threads.into_iter().map(Thread::measurement).collect(),
        written,
        datagrams: None,
        rules: matched(&rules, &tables),
        updates: None,
        fallback_status: tables.fallback_status(),
        timeline: None,
    })
}

/// Each thread processes its part of a block. Returns the number of frames with another link type.
fn share<P: Processor>(block: &Block, threads: &mut [Thread<P>]) -> Result<u64, Error> {
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
    .map_err(|_| Error::failed("a thread panicked"))?
    .map_err(Error::failed)?;
    Ok((block.len() - frames.len()) as u64)
}

struct Thread<P> {
    worker: Worker<P>,
    cpu: usize,
    batch: usize,
    measurement: Measurement,
    /// The decisions about its part of the last block.
    decided: Vec<Decision>,
}

impl<P: Processor> Thread<P> {
    fn new(processor: P, cpu: usize, batch: usize) -> Self {
        Self {
            worker: Worker::new(processor, batch),
            cpu,
            batch,
            measurement: Measurement::default(),
            decided: Vec::new(),
        }
    }

    fn decide(&mut self, frames: &[&[u8]]) -> Result<(), P::Error> {
        self.decided.clear();
        let began = Instant::now();
        for batch in frames.chunks(self.batch) {
            let stages = self.worker.decide(batch.iter().copied())?;
            self.measurement.batch(&stages, stages.scattered);
            self.decided.extend_from_slice(self.worker.decisions());
        }
        // Reading and writing files is not included.
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.measurement.elapsed_ns += took;
        Ok(())
    }

    fn measurement(self) -> Measurement {
        Measurement {
            counters: *self.worker.counters(),
            ..self.measurement
        }
    }
}

impl<'a> Out<'a> {
    fn create(path: &'a Path) -> Result<Self, Error> {
        let failed = |error| Error::file(path, error);
        let file = File::create(path).map_err(failed)?;
        Ok(Self {
            path,
            writer: Writer::new(BufWriter::new(file), ETHERNET).map_err(failed)?,
            written: CaptureCounts::default(),
            frame: Vec::new(),
        })
    }

    fn write(&mut self, time_ns: i64, frame: &[u8], decision: Decision) -> Result<(), Error> {
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
        written.map_err(|error| Error::failed(format!("{}: {error}", self.path.display())))
    }

    fn finish(self) -> Result<CaptureCounts, Error> {
        let (path, written) = (self.path, self.written);
        let finished = self.writer.finish();
        finished.map_err(|error| Error::attempt(path.display().to_string(), error))?;
        Ok(written)
    }
}
