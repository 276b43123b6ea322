//! The `pcap` datapath: a capture, from its first record to its last.

mod parallel;

use std::io::Read;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_schema::SchemaRef;
use packet::pcap::{Block, Error as PcapError, Reader};

use crate::counters::{Counters, Refused, Unaccounted};
use crate::extractor::Options;
use crate::schema::Schema;
use crate::sink::{self, Sink};
use crate::work::{Done, Work};

/// How far a run has come; read by whoever shows it, from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    pub packets: AtomicU64,
    /// Set to end the run early, with everything exported that was seen.
    pub stop: AtomicBool,
}

/// What a run has done.
#[derive(Debug)]
pub struct Summary {
    pub counters: Counters,
    pub rows: u64,
    /// Rows that the sink did not take.
    pub lost_rows: u64,
    /// Why reading ended before the end of the input.
    pub input: Option<PcapError>,
    /// Why writing ended before the end of the rows.
    pub output: Option<sink::Error>,
    /// It was stopped.
    pub stopped: bool,
}

/// Why a run's rows are not those of the whole capture, or cannot be relied on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}; the rows of what came before are complete")]
    Input(String),
    #[error(
        "no frame has a link type that is read: Ethernet, raw IP, Linux SLL, PPP, BSD loopback"
    )]
    LinkType,
    #[error("{why}; {lost} rows are lost")]
    Output { why: String, lost: u64 },
    #[error(transparent)]
    Unaccounted(#[from] Unaccounted),
}

impl Summary {
    /// What is wrong with the rows, if anything is; that somebody stopped the run is not.
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(why) = &self.output {
            let (why, lost) = (why.to_string(), self.lost_rows);
            return Err(Fault::Output { why, lost });
        }
        if let Some(why) = &self.input {
            return Err(Fault::Input(why.to_string()));
        }
        self.counters.check()?;
        let seen = &self.counters.seen;
        if seen.packets > 0 && seen.refused(Refused::LinkType) == seen.packets {
            return Err(Fault::LinkType);
        }
        Ok(())
    }
}

/// A run over one capture.
#[derive(Debug)]
pub struct Run {
    pub options: Options,
    pub schema: &'static Schema,
}

impl Run {
    /// Rows in Arrow's terms.
    pub fn arrow_schema(&self) -> SchemaRef {
        crate::arrow_schema(self.schema, &self.options)
    }

    /// Reads a capture to its end, its first broken record, or a stop, and writes every row.
    pub fn run(&self, input: impl Read, sink: Box<dyn Sink>, progress: &Progress) -> Summary {
        let mut work = Work::new(self.schema, &self.options, sink);
        let input = frames(input, progress, &mut work);
        summary(work.finish(), input, progress)
    }

    /// The same by so many workers: the same rows in another order.
    pub fn run_on(
        &self,
        workers: NonZeroU32,
        input: impl Read,
        sink: Box<dyn Sink>,
        progress: &Progress,
    ) -> Summary {
        if workers == NonZeroU32::MIN {
            return self.run(input, sink, progress);
        }
        let (done, input) = parallel::run(self, workers, input, sink, progress);
        summary(done, input, progress)
    }
}

fn summary(done: Done, input: Result<(), PcapError>, progress: &Progress) -> Summary {
    Summary {
        counters: done.counters,
        rows: done.rows,
        lost_rows: done.lost_rows,
        input: input.err(),
        output: done.output.err(),
        stopped: progress.stop.load(Ordering::Relaxed),
    }
}

/// Takes every frame until there is none, the output takes no more, or a stop.
fn frames(input: impl Read, progress: &Progress, work: &mut Work) -> Result<(), PcapError> {
    let mut reader = Reader::new(input)?;
    let mut block = Block::new();
    let mut packets = 0;
    while reader.read_block(&mut block)? {
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
        if work.has_failed() || progress.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}
