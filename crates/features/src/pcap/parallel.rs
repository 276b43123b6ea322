//! Reads one capture with several workers. The reader assigns each frame to the worker that holds its flow, and
//! schedules the sweeps for ended flows. All workers sweep at the same frames and times as a single one would, so the
//! rows do not depend on the number of workers.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use packet::pcap::Block;

use super::{Captures, Progress, Run};
use crate::counters::{Counters, InputCounters};
use crate::dissect::shard;
use crate::extractor::{Done, Horizon, RowExtractor};
use crate::options::Options;
use crate::sink::{Shared, Sink};

/// The maximum number of blocks that wait for a worker, about 1 MiB each.
const AHEAD: usize = 4;

/// Reads captures to their end or a stop. The rows do not identify the worker.
pub(super) fn run(
    run: &Run,
    workers: NonZeroU32,
    captures: &mut Captures<'_>,
    sink: Box<dyn Sink>,
    progress: &Progress,
) -> (Done, bool, InputCounters) {
    let sink = Shared::new(sink);
    let (pool, failed) = (Pool::default(), AtomicBool::new(false));
    let closed = AtomicBool::new(false);
    let options = part(run.schema.options(&run.options), workers);
    let works: Vec<RowExtractor> = (0..workers.get())
        .map(|_| RowExtractor::to_sink(run.schema, &options, sink.handle()))
        .collect();
    thread::scope(|scope| {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for (worker, mut work) in works.into_iter().enumerate() {
            let (sender, parts) = sync_channel::<Part>(AHEAD);
            let (pool, failed, closed) = (&pool, &failed, &closed);
            threads.push(scope.spawn(move || {
                for part in parts {
                    take(&mut work, &part);
                    progress.tell(worker, &work);
                    if work.has_failed() {
                        closed.fetch_or(work.has_closed_pipe(), Ordering::Relaxed);
                        failed.store(true, Ordering::Relaxed);
                    }
                    pool.give_back(part);
                }
                work.finish()
            }));
            senders.push(sender);
        }
        let mut handout = Handout {
            options: &options,
            senders,
            pool: &pool,
            horizon: Horizon::default(),
        };
        let mut ended = handout.read(captures, progress, &failed);
        drop(handout);
        let mut rest = InputCounters::default();
        if !ended && failed.load(Ordering::Relaxed) && !closed.load(Ordering::Relaxed) {
            ended = super::count_rest(captures, progress, &mut rest);
        }
        let done = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (done.fold(nothing(), and), ended, rest)
    })
}

/// The options of one of several workers, with its share of the flow limit.
fn part(mut options: Options, workers: NonZeroU32) -> Options {
    let workers = usize::try_from(workers.get()).unwrap_or(usize::MAX);
    options.limits.most_flows = (options.limits.most_flows / workers).max(1);
    options
}

/// A worker's part of a block.
struct Part {
    block: Arc<Block>,
    turns: Turns,
}

/// The work of a worker on a block.
#[derive(Debug, Default)]
struct Turns {
    /// The indices of its frames.
    frames: Vec<usize>,
    /// The sweeps: after how many of its frames, and up to which time.
    sweeps: Vec<(usize, i64)>,
    /// The time of the capture's first frame, sent with the first block.
    begin_ns: Option<i64>,
}

/// Buffers for reuse.
#[derive(Debug, Default)]
struct Pool {
    blocks: Mutex<Vec<Block>>,
    turns: Mutex<Vec<Turns>>,
}

impl Pool {
    fn give_back(&self, part: Part) {
        let Part { block, mut turns } = part;
        if let Some(block) = Arc::into_inner(block) {
            lock(&self.blocks).push(block);
        }
        turns.frames.clear();
        turns.sweeps.clear();
        turns.begin_ns = None;
        lock(&self.turns).push(turns);
    }

    fn block(&self) -> Block {
        lock(&self.blocks).pop().unwrap_or_default()
    }

    fn turns(&self) -> Turns {
        lock(&self.turns).pop().unwrap_or_default()
    }
}

/// The reader's side.
struct Handout<'a> {
    options: &'a Options,
    senders: Vec<SyncSender<Part>>,
    pool: &'a Pool,
    horizon: Horizon,
}

impl Handout<'_> {
    /// Reads the capture. Returns whether it has ended.
    fn read(
        &mut self,
        captures: &mut Captures<'_>,
        progress: &Progress,
        failed: &AtomicBool,
    ) -> bool {
        let mut packets = 0;
        loop {
            let mut block = self.pool.block();
            if !captures.read_block(&mut block) {
                return true;
            }
            let begin_ns = block.get(0).filter(|_| packets == 0);
            packets += u64::try_from(block.len()).unwrap_or(0);
            let begin_ns = begin_ns.map(|first| first.timestamp_ns);
            self.hand_out(block, begin_ns);
            progress.packets.store(packets, Ordering::Relaxed);
            if failed.load(Ordering::Relaxed) || progress.stop.load(Ordering::Relaxed) {
                return false;
            }
        }
    }

    fn hand_out(&mut self, block: Block, begin_ns: Option<i64>) {
        let workers = u32::try_from(self.senders.len()).unwrap_or(u32::MAX);
        let turns = self.senders.iter().map(|_| Turns {
            begin_ns,
            ..self.pool.turns()
        });
        let mut turns: Vec<Turns> = turns.collect();
        for (index, frame) in block.frames().enumerate() {
            let worker = shard(&frame, self.options.tunnels, workers);
            turns[worker as usize].frames.push(index);
            if let Some(horizon_ns) = self.horizon.frame(frame.timestamp_ns) {
                for turns in &mut turns {
                    turns.sweeps.push((turns.frames.len(), horizon_ns));
                }
            }
        }
        let block = Arc::new(block);
        for (turns, sender) in turns.into_iter().zip(&self.senders) {
            let block = Arc::clone(&block);
            // Sending fails only if the worker has panicked, which joining it reports.
            let _taken = sender.send(Part { block, turns });
        }
    }
}

/// Processes a worker's part of a block.
fn take(work: &mut RowExtractor, part: &Part) {
    if let Some(begin_ns) = part.turns.begin_ns {
        work.begin(begin_ns);
    }
    let mut sweeps = part.turns.sweeps.iter().peekable();
    for (done, &index) in part.turns.frames.iter().enumerate() {
        while let Some((_, horizon_ns)) = sweeps.next_if(|(after, _)| *after <= done) {
            work.sweep(*horizon_ns);
        }
        if let Some(frame) = part.block.get(index) {
            work.part(&frame);
        }
    }
    sweeps.for_each(|(_, horizon_ns)| work.sweep(*horizon_ns));
}

fn nothing() -> Done {
    Done {
        counters: Counters::default(),
        rows: 0,
        lost_rows: 0,
        output: Ok(()),
    }
}

/// The sum of two workers' results.
fn and(one: Done, other: Done) -> Done {
    Done {
        counters: one.counters.and(other.counters),
        rows: one.rows + other.rows,
        lost_rows: one.lost_rows + other.lost_rows,
        output: one.output.and(other.output),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
