//! The `pcap` datapath: reads captures from the first record of the first to the last record of the last.

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

/// The progress of a run, for a display in another thread.
#[derive(Debug, Default)]
pub struct Progress {
    pub packets: AtomicU64,
    /// Set to end the run early. All flows seen so far are exported.
    pub stop: AtomicBool,
    /// Set if the input is finite, like a file. After an error of the output, the rest of the input is then read to
    /// count its packets.
    pub counts_rest: AtomicBool,
    /// The latest report of each worker.
    told: Mutex<Vec<SoFar>>,
}

/// The counters of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    pub counters: Counters,
    pub rows: u64,
    pub lost_rows: u64,
}

impl Progress {
    /// The sum over all workers, each as of its last block.
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

/// The result of a run.
#[derive(Debug)]
pub struct Summary {
    pub counters: Counters,
    pub rows: u64,
    /// Rows that the sink did not accept.
    pub lost_rows: u64,
    /// The number of captures that were begun.
    pub captures: u64,
    /// The captures that could not be read to their end.
    pub damaged: Vec<Damage>,
    /// The error that ended writing before the last row.
    pub output: Option<sink::Error>,
    /// Whether the run was stopped.
    pub stopped: bool,
    /// Whether the input was read to its end. If not, the number of unread packets is unknown.
    pub ended: bool,
}

/// The reason that a run's rows are incomplete or unreliable.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}; the rows of what came before are complete")]
    Input(String),
    /// No input is a capture.
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
    /// Checks that the rows are complete and reliable. A stop is not a fault, and neither is a closed reader of
    /// standard output.
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

/// The maximum number of damaged captures listed in an error.
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

/// A run over captures that are read as one: a flow continues from one capture to the next.
#[derive(Debug)]
pub struct Run {
    pub options: Options,
    pub schema: &'static Schema,
}

/// The total file size in bytes from which several threads are used.
const LARGE: u64 = 256 << 20;
/// The maximum delay of rows in a followed rotation while packets arrive.
const FLUSH: Duration = Duration::from_secs(1);
/// The maximum number of threads. The thread that reads the file could not supply more.
const MAX_THREADS: usize = 8;

/// The number of threads: as requested, or as appropriate for the files. More threads reduce the time, not the work.
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
    /// The Arrow schema of the rows.
    pub fn arrow_schema(&self) -> SchemaRef {
        crate::arrow_schema(self.schema, &self.options)
    }

    /// Reads a capture to its end, its first broken record, or a stop. Writes all rows.
    pub fn run(
        &self,
        input: impl Read + Send,
        sink: Box<dyn Sink>,
        progress: &Progress,
    ) -> Summary {
        self.run_recorded(Captures::one(input), sink, None, progress)
    }

    /// Like [`Self::run`] for several captures. Also records the frames whose packets make rows.
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

    /// Like [`Self::run`] with several workers. The rows are the same, but in another order.
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

/// Without a capture, the output is left unchanged.
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

/// Reads frames until the input ends, the output fails, or the run is stopped. Returns whether the input ended, and the
/// counters of frames that were only counted.
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

/// Counts the remaining frames after the output has failed, if the input is finite. Returns whether the input ended.
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
