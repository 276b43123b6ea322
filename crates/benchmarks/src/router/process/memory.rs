//! Packets from memory, over and over, in several threads. Nothing is received or sent: the work on headers
//! is measured by itself.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use process::shutdown::Shutdown;
use router::engine::{Processor, Worker};
use router::frames::Frames;

use super::Options;
use super::measurement::{Measurement, float, whole};
use super::pace::Schedule;
use super::report::{Report, TableSizes, matched};
use super::targets::Verdicts;
use super::threads::{cpus, pin};
use super::timeline::Timeline;
use super::updates::Updates;
use crate::Error;
use crate::router::Dataset;
use crate::router::engine::MeasuredEngine;
use crate::router::traffic::Source;

pub(super) fn run<E: MeasuredEngine>(
    source: &Source,
    dataset: Dataset,
    options: &Options,
    shutdown: &Shutdown,
    build: impl FnOnce(Dataset) -> Result<E, Error>,
) -> Result<Report, Error> {
    let cpus = cpus(options.threads)?;
    let (frames, origin) = source.frames(&dataset.contents, options.function)?;
    let sizes = TableSizes::new(&dataset.contents);
    let rules = dataset.contents.rules.clone();
    let verdicts = Verdicts::new(&dataset.targets);
    let updates = Updates::new(options.updates, &dataset.contents)?;
    let mut tables = build(dataset)?;
    let sizes = sizes.with_bytes(&tables);
    let mut processors = Vec::new();
    for _ in &cpus {
        let processor = tables.processor(options.function);
        processors.push(verdicts.processor(processor.map_err(Error::failed)?));
    }
    let stop = AtomicBool::new(false);
    let (threads, updates) = thread::scope(|scope| {
        let running: Vec<_> = cpus
            .iter()
            .zip(processors)
            .enumerate()
            .map(|(number, (cpu, processor))| {
                let start = frames.len() * number / cpus.len();
                let schedule = options.pace.schedule(number, cpus.len());
                let (frames, stop, batch) = (&frames, &stop, options.batch);
                scope.spawn(move || {
                    pin(*cpu);
                    work(processor, (frames, start), (batch, schedule), stop)
                })
            })
            .collect();
        let updates = updates.apply(&mut tables, options.duration, shutdown);
        stop.store(true, Ordering::Relaxed);
        let threads = running
            .into_iter()
            .map(|thread| {
                let joined = thread.join();
                let joined = joined.map_err(|_| Error::failed("a thread panicked"))?;
                joined.map_err(Error::failed)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok::<_, Error>((threads, updates?))
    })?;
    Ok(Report {
        timeline: Timeline::measure(&tables, options, &frames, shutdown),
        origin,
        tables: sizes,
        threads,
        written: None,
        datagrams: None,
        rules: matched(&rules, &tables),
        updates,
        fallback_status: tables.fallback_status(),
    })
}

/// One thread: batch after batch from `start` on, as they arrive, until `stop` is set.
fn work<P: Processor>(
    processor: P,
    (frames, start): (&Frames, usize),
    (batch, mut schedule): (usize, Option<Schedule>),
    stop: &AtomicBool,
) -> Result<Measurement, P::Error> {
    let mut worker = Worker::new(processor, batch);
    let mut measured = Measurement::default();
    let mut ring = Ring {
        frames,
        next: start,
    };
    // The first batch is not measured: buffers grow, and a device compiles its kernels.
    worker.decide(ring.take(ring.most(batch)))?;
    let before = *worker.counters();
    let (began, first) = (Instant::now(), sys::clock::ticks());
    let per_ns = sys::clock::ticks_per_ns();
    loop {
        let mut packets = ring.most(batch);
        let mut arrivals = None;
        if let Some(schedule) = &mut schedule {
            let now = float(sys::clock::ticks() - first) / per_ns;
            if let Some(due) = schedule.take(now, packets) {
                let at = |ns: f64| first + whole(ns * per_ns);
                packets = due.packets;
                arrivals = Some((at(due.first), at(due.last)));
            } else if stop.load(Ordering::Relaxed) {
                break;
            } else {
                hint::spin_loop();
                continue;
            }
        }
        let stages = worker.decide(ring.take(packets))?;
        measured.partial += u64::from(packets < batch);
        let arrivals = arrivals.unwrap_or((stages.started, stages.gathered));
        measured.batch_with_arrivals(&stages, stages.scattered, arrivals);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    measured.elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    measured.counters = worker.counters().since(&before);
    measured.first_batch = before.packets;
    Ok(measured)
}

/// Frames that repeat.
struct Ring<'a> {
    frames: &'a Frames,
    next: usize,
}

impl<'a> Ring<'a> {
    /// Packets of the next batch: it ends with the last frame.
    fn most(&self, batch: usize) -> usize {
        batch.min(self.frames.len() - self.next)
    }

    fn take(&mut self, packets: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (frames, start) = (self.frames, self.next);
        let end = start + packets;
        self.next = if end == frames.len() { 0 } else { end };
        (start..end).map(|at| frames.get(at))
    }
}
