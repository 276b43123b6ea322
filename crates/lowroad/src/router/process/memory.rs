//! Packets from memory, over and over, by as many threads as wanted: nothing is received or sent, so
//! that what is left is the work on headers.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::anyhow;
use control::shutdown::Shutdown;
use router::engine::{Contents, Function, Processor, Worker};
use router::frames::{Frames, Mix};

use super::measure::{Measured, float, whole};
use super::pace::Schedule;
use super::subject::Subject;
use super::told::{About, Told, met};
use super::{Given, Packets, Process, Traffic};
use crate::exit::Failure;
use crate::features::pcap;

impl Process {
    pub(super) fn memory<E: Subject>(
        &self,
        given: Given,
        mut about: About,
        shutdown: &Shutdown,
        engine: impl FnOnce(Given) -> Result<E, Failure>,
    ) -> Result<Told, Failure> {
        let cpus = self.cpus()?;
        let (frames, from) = self.frames(&given.contents, &about)?;
        let rules = given.contents.rules.clone();
        let changing = self.updates.of(&given.contents)?;
        let mut tables = engine(given)?;
        about.bytes = tables.bytes();
        let mut lookups = Vec::new();
        for _ in &cpus {
            lookups.push(
                tables
                    .processor(about.function)
                    .map_err(|error| anyhow!(error))?,
            );
        }
        let stop = AtomicBool::new(false);
        let (threads, changed) = thread::scope(|scope| {
            let running: Vec<_> = cpus
                .iter()
                .zip(lookups)
                .enumerate()
                .map(|(number, (cpu, lookup))| {
                    let start = frames.len() * number / cpus.len();
                    let schedule = self.pace.schedule(number, cpus.len());
                    let (frames, stop, batch) = (&frames, &stop, about.batch);
                    scope.spawn(move || {
                        pin(*cpu);
                        work(lookup, (frames, start), (batch, schedule), stop)
                    })
                })
                .collect();
            let (duration, updates) = (self.duration, &self.updates);
            let changed = updates.make(&mut tables, &changing, duration, shutdown);
            stop.store(true, Ordering::Relaxed);
            let threads = running
                .into_iter()
                .map(|thread| {
                    let joined = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
                    joined.map_err(|error| anyhow!(error))
                })
                .collect::<Result<Vec<_>, anyhow::Error>>()?;
            Ok::<_, Failure>((threads, changed?))
        })?;
        let rules = met(&rules, &tables);
        Ok(Told {
            timeline: self.timed(&tables, &about, &frames, shutdown),
            about,
            from,
            threads,
            written: None,
            exchanged: None,
            rules,
            changed,
            fallen: tables.fallen(),
        })
    }

    /// A CPU for each thread.
    pub(super) fn cpus(&self) -> Result<Vec<usize>, Failure> {
        let cpus = sys::sched::allowed_cpus().map_err(|error| anyhow!("CPUs: {error}"))?;
        let (wanted, has) = (self.threads.get(), cpus.len());
        if wanted > has {
            return Err(Failure::Input(format!(
                "--threads {wanted}: each has a CPU of its own, and this process may use {has}"
            )));
        }
        Ok(cpus.into_iter().take(wanted).collect())
    }

    fn frames(&self, contents: &Contents, about: &About) -> Result<(Frames, String), Failure> {
        if let Some(path) = &self.capture {
            let name = path.display();
            let read = Frames::read(pcap::open(path)?, usize::MAX);
            let (frames, others) =
                read.map_err(|error| Failure::Input(format!("{name}: {error}")))?;
            if frames.is_empty() {
                return Err(Failure::Input(format!("{name} has no Ethernet frames")));
            }
            if others > 0 {
                tracing::warn!("{name}: {others} frames of other link types are left out");
            }
            return Ok((frames, name.to_string()));
        }
        self.made.frames(contents, about.function)
    }
}

impl Packets {
    /// Frames that are made up, and how.
    pub(in crate::router) fn frames(
        &self,
        contents: &Contents,
        function: Function,
    ) -> Result<(Frames, String), Failure> {
        let routed = !contents.v4.is_empty() || !contents.v6.is_empty();
        let traffic = self.traffic.unwrap_or(if routed {
            Traffic::PerPrefix
        } else {
            Traffic::Rules
        });
        if traffic.pattern().is_some() && !routed {
            let what = format!(
                "--traffic {} is drawn from routes, and {} has none: use --traffic rules",
                traffic.name(),
                function
            );
            return Err(Failure::Input(what));
        }
        let only6 = contents.v4.is_empty() && contents.rules.v4.is_empty();
        let mix = Mix {
            pattern: traffic.pattern(),
            packets: self.packets as usize,
            ipv6: self.ipv6.unwrap_or(if only6 { 100 } else { 0 }),
            length: self.length.into(),
            seed: self.seed,
        };
        let frames = match traffic {
            Traffic::Random => Frames::anywhere(&mix),
            _ => Frames::made(contents, &mix),
        };
        if frames.is_empty() {
            return Err(Failure::Input(
                "no packets can be made up: there are no routes of this family; see --ipv6"
                    .to_owned(),
            ));
        }
        let from = format!(
            "{} frames made up, {}, seed {}",
            frames.len(),
            traffic.name(),
            self.seed
        );
        Ok((frames, from))
    }
}

pub(super) fn pin(cpu: usize) {
    if let Err(error) = sys::sched::pin(cpu) {
        tracing::warn!(cpu, %error, "runs unpinned");
    }
}

/// One thread: batch after batch from `start` on, as they come, until it is stopped.
fn work<P: Processor>(
    lookup: P,
    (frames, start): (&Frames, usize),
    (batch, mut schedule): (usize, Option<Schedule>),
    stop: &AtomicBool,
) -> Result<Measured, P::Error> {
    let mut worker = Worker::new(lookup, batch);
    let mut measured = Measured::default();
    let mut ring = Ring {
        frames,
        next: start,
    };
    // In no figure: it grows buffers, and a device builds what it runs.
    worker.decide(ring.take(ring.most(batch)))?;
    let before = *worker.counters();
    let (began, first) = (Instant::now(), sys::clock::ticks());
    let per_ns = sys::clock::ticks_per_ns();
    loop {
        let mut packets = ring.most(batch);
        let mut came = None;
        if let Some(schedule) = &mut schedule {
            let now = float(sys::clock::ticks() - first) / per_ns;
            if let Some(due) = schedule.take(now, packets) {
                let at = |ns: f64| first + whole(ns * per_ns);
                packets = due.packets;
                came = Some((at(due.first), at(due.last)));
            } else if stop.load(Ordering::Relaxed) {
                break;
            } else {
                hint::spin_loop();
                continue;
            }
        }
        let stages = worker.decide(ring.take(packets))?;
        measured.partial += u64::from(packets < batch);
        let came = came.unwrap_or((stages.started, stages.gathered));
        measured.batch_that_came(&stages, stages.scattered, came);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    measured.elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    measured.counters = worker.counters().since(&before);
    measured.first_batch = before.packets;
    Ok(measured)
}

/// Frames that come over and over.
struct Ring<'a> {
    frames: &'a Frames,
    next: usize,
}

impl<'a> Ring<'a> {
    /// How many a batch has before they begin anew.
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
