//! The `pcap` datapath: captures, from the first record of the first to the last record of the last.

mod captures;
mod files;
mod follow;
mod parallel;

use std::fs;
use std::io::Read;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use datapath::{Classify, ErrorClass};
use packet::pcap::Block;

use crate::counters::{Counters, Imbalance, InputCounters, Rejection};
use crate::extractor::{Done, RowExtractor};
use crate::options::Options;
use crate::recording::Recorder;
use crate::schema::Schema;
use crate::sink::{self, Sink};

pub use captures::{Captures, Damage, Input};
pub use files::{NoFiles, captures as capture_files};

/// How far a run has come; read by whoever shows it, from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    pub packets: AtomicU64,
    /// Set to end the run early, with everything exported that was seen.
    pub stop: AtomicBool,
    /// Set where the input ends by itself, as a file does: after the output has failed, the rest of the input
    /// is read to count its packets.
    pub counts_rest: AtomicBool,
    /// What each worker has said last.
    told: Mutex<Vec<SoFar>>,
}

/// What a run has done until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    pub counters: Counters,
    pub rows: u64,
    pub lost_rows: u64,
}

impl Progress {
    /// What all workers have done, each as it was after its last block.
    pub fn so_far(&self) -> SoFar {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().copied().fold(SoFar::default(), SoFar::and)
    }

    fn tell(&self, worker: usize, work: &RowExtractor) {
        let (rows, lost_rows) = work.rows();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() <= worker {
            told.resize(worker + 1, SoFar::default());
        }
        told[worker] = SoFar {
            counters: work.quick_counters(),
            rows,
            lost_rows,
        };
    }
}

impl SoFar {
    fn and(self, other: Self) -> Self {
        Self {
            counters: self.counters.and(other.counters),
            rows: self.rows + other.rows,
            lost_rows: self.lost_rows + other.lost_rows,
        }
    }
}

/// What a run has done.
#[derive(Debug)]
pub struct Summary {
    pub counters: Counters,
    pub rows: u64,
    /// Rows that the sink did not take.
    pub lost_rows: u64,
    /// Captures that were begun.
    pub captures: u64,
    /// The captures that could not be read to their end.
    pub damaged: Vec<Damage>,
    /// Why writing ended before the end of the rows.
    pub output: Option<sink::Error>,
    /// It was stopped.
    pub stopped: bool,
    /// The input was read to its end; otherwise nothing is known of what followed.
    pub ended: bool,
}

/// Why a run's rows are not those of the whole capture, or cannot be relied on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}; the rows of what came before are complete")]
    Input(String),
    /// There is nothing to make rows of.
    #[error("{0}")]
    NoCapture(String),
    #[error(
        "no frame has a link type that is read: Ethernet, raw IP, Linux SLL, PPP, BSD loopback"
    )]
    LinkType,
    #[error("{why}; {lost} rows are lost, and {rest}")]
    Output {
        why: String,
        lost: u64,
        rest: String,
    },
    #[error(transparent)]
    Unaccounted(#[from] Imbalance),
}

impl Classify for Fault {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Input(_) | Self::NoCapture(_) | Self::LinkType => ErrorClass::Input,
            Self::Output { .. } | Self::Unaccounted(_) => ErrorClass::Failed,
        }
    }
}

impl Summary {
    /// What is wrong with the rows, if anything is. A stop is no fault, nor is a reader of standard output that
    /// has closed it.
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(why) = &self.output {
            if why.is_closed_pipe() {
                return Ok(());
            }
            let rest = match self.counters.seen.unread {
                _ if !self.ended => "the rest of the capture was not read".to_owned(),
                packets => format!("{packets} packets were not read"),
            };
            return Err(Fault::Output {
                why: why.to_string(),
                lost: self.lost_rows,
                rest,
            });
        }
        if !self.damaged.is_empty() {
            let begins = self.counters.seen.packets > 0;
            let fault = if begins {
                Fault::Input
            } else {
                Fault::NoCapture
            };
            return Err(fault(self.describe_damage()));
        }
        self.counters.check()?;
        let seen = &self.counters.seen;
        if seen.packets > 0 && seen.refused(Rejection::LinkType) == seen.packets {
            return Err(Fault::LinkType);
        }
        Ok(())
    }
}

/// The damaged captures that an error names.
const MAX_LISTED_FILES: usize = 8;

impl Summary {
    /// The captures that could not be read to their end, and why.
    fn describe_damage(&self) -> String {
        let named = self
            .damaged
            .iter()
            .take(MAX_LISTED_FILES)
            .map(ToString::to_string);
        let mut named = named.collect::<Vec<_>>().join("; ");
        if let Some(others) = self
            .damaged
            .len()
            .checked_sub(MAX_LISTED_FILES)
            .filter(|n| *n > 0)
        {
            named += &format!("; and {others} more");
        }
        if self.captures == 1 {
            return named;
        }
        let (damaged, all) = (self.damaged.len(), self.captures);
        format!("{damaged} of {all} captures are damaged: {named}")
    }
}

/// A run over captures, which are read as one: a flow goes on from one to the next.
#[derive(Debug)]
pub struct Run {
    pub options: Options,
    pub schema: &'static Schema,
}

/// Bytes of all files from which on several threads read them.
const LARGE: u64 = 256 << 20;
/// How long rows of a rotation that is followed wait for others while packets come.
const FLUSH: Duration = Duration::from_secs(1);
/// Beyond, whoever reads the file could not keep them busy.
const MAX_THREADS: usize = 8;

/// As many threads as were asked for, or are worth while: more take less time, but not less work.
pub fn threads(asked: Option<NonZeroU32>, files: &[PathBuf]) -> NonZeroU32 {
    if let Some(asked) = asked {
        return asked;
    }
    let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
    let size: u64 = sizes
        .filter(fs::Metadata::is_file)
        .map(|found| found.len())
        .fold(0, u64::saturating_add);
    if size < LARGE {
        return NonZeroU32::MIN;
    }
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = u32::try_from(cpus.min(MAX_THREADS)).ok();
    threads.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}

impl Run {
    /// Rows in Arrow's terms.
    pub fn arrow_schema(&self) -> SchemaRef {
        crate::arrow_schema(self.schema, &self.options)
    }

    /// Reads a capture to its end, its first broken record, or a stop, and writes every row.
    pub fn run(
        &self,
        input: impl Read + Send,
        sink: Box<dyn Sink>,
        progress: &Progress,
    ) -> Summary {
        self.run_recorded(Captures::one(input), sink, None, progress)
    }

    /// The same of several captures, and the frames whose packets make rows are recorded.
    pub fn run_recorded(
        &self,
        mut captures: Captures<'_>,
        sink: Box<dyn Sink>,
        recorder: Option<Recorder>,
        progress: &Progress,
    ) -> Summary {
        if !captures.begin() {
            return not_begun(sink, captures);
        }
        let work = RowExtractor::to_sink(self.schema, &self.options, sink);
        let mut work = work.recorded_by(recorder);
        let (ended, rest) = frames(&mut captures, progress, &mut work);
        summary(work.finish(), captures, ended, rest, progress)
    }

    /// The same by so many workers: the same rows in another order.
    pub fn run_on(
        &self,
        workers: NonZeroU32,
        mut captures: Captures<'_>,
        sink: Box<dyn Sink>,
        progress: &Progress,
    ) -> Summary {
        if workers == NonZeroU32::MIN {
            return self.run_recorded(captures, sink, None, progress);
        }
        if !captures.begin() {
            return not_begun(sink, captures);
        }
        let (done, ended, rest) = parallel::run(self, workers, &mut captures, sink, progress);
        summary(done, captures, ended, rest, progress)
    }
}

/// What is no capture leaves an output alone.
fn not_begun(mut sink: Box<dyn Sink>, captures: Captures<'_>) -> Summary {
    sink.abandon();
    let (captures, damaged) = captures.finish();
    Summary {
        counters: Counters::default(),
        rows: 0,
        lost_rows: 0,
        captures,
        damaged,
        output: None,
        stopped: false,
        ended: false,
    }
}

fn summary(
    done: Done,
    captures: Captures<'_>,
    ended: bool,
    rest: InputCounters,
    progress: &Progress,
) -> Summary {
    let mut counters = done.counters;
    counters.seen = counters.seen.and(rest);
    let (captures, damaged) = captures.finish();
    Summary {
        counters,
        rows: done.rows,
        lost_rows: done.lost_rows,
        ended: ended && damaged.is_empty(),
        captures,
        damaged,
        output: done.output.err(),
        stopped: progress.stop.load(Ordering::Relaxed),
    }
}

/// Takes every frame until there is none, the output takes no more, or a stop. Whether there are no more, and what
/// was counted without being taken.
fn frames(
    captures: &mut Captures<'_>,
    progress: &Progress,
    work: &mut RowExtractor,
) -> (bool, InputCounters) {
    let mut rest = InputCounters::default();
    let mut ended = take(captures, progress, work);
    if !ended && work.has_failed() && !work.has_closed_pipe() {
        ended = count_rest(captures, progress, &mut rest);
    }
    (ended, rest)
}

/// Counts the frames that follow once the output has failed, if the input ends by itself; whether there are no
/// more.
fn count_rest(captures: &mut Captures<'_>, progress: &Progress, rest: &mut InputCounters) -> bool {
    let mut block = Block::new();
    while progress.counts_rest.load(Ordering::Relaxed) && !progress.stop.load(Ordering::Relaxed) {
        if !captures.read_block(&mut block) {
            return true;
        }
        rest.pass_over(&block);
    }
    false
}

fn take(captures: &mut Captures<'_>, progress: &Progress, work: &mut RowExtractor) -> bool {
    let mut block = Block::new();
    let mut packets = 0;
    let mut flushed = Instant::now();
    while captures.read_block(&mut block) {
        if packets == 0
            && let Some(first) = block.get(0)
        {
            work.begin(first.timestamp_ns);
        }
        for frame in block.frames() {
            work.frame(&frame);
        }
        packets += u64::try_from(block.len()).unwrap_or(0);
        progress.packets.store(packets, Ordering::Relaxed);
        progress.tell(0, work);
        if captures.follows() && flushed.elapsed() >= FLUSH {
            work.flush();
            flushed = Instant::now();
        }
        if work.has_failed() || progress.stop.load(Ordering::Relaxed) {
            return false;
        }
    }
    true
}
