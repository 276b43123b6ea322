//! The `pcap` datapath: a capture, from its first record to its last.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_schema::SchemaRef;
use packet::pcap::{Error as PcapError, Frame, Reader};

use crate::counters::{Counters, Refused, Unaccounted};
use crate::extractor::Options;
use crate::schema::Schema;
use crate::sink::{self, Sink};
use crate::work::{self, FlowWork};

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
        work::arrow_schema(self.schema, &self.options)
    }

    /// Reads a capture to its end, its first broken record, or a stop, and writes every row.
    pub fn run(&self, input: impl Read, sink: Box<dyn Sink>, progress: &Progress) -> Summary {
        let mut work = FlowWork::new(self.schema, &self.options, sink);
        let input = frames(input, progress, |frame| {
            work.frame(frame);
            !work.has_failed()
        });
        let done = work.finish();
        Summary {
            counters: done.counters,
            rows: done.rows,
            lost_rows: done.lost_rows,
            input: input.err(),
            output: done.output.err(),
            stopped: progress.stop.load(Ordering::Relaxed),
        }
    }
}

/// Packets between two looks at the stop flag.
const BURST: u64 = 4096;

/// Hands over every frame until there is none, `take` wants no more, or a stop.
fn frames(
    input: impl Read,
    progress: &Progress,
    mut take: impl FnMut(&Frame<'_>) -> bool,
) -> Result<(), PcapError> {
    let mut packets = 0;
    let mut reader = Reader::new(input)?;
    while let Some(frame) = reader.read()? {
        if !take(&frame) {
            break;
        }
        packets += 1;
        if packets % BURST == 0 {
            progress.packets.store(packets, Ordering::Relaxed);
            if progress.stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    progress.packets.store(packets, Ordering::Relaxed);
    Ok(())
}
