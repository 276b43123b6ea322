//! Rows as an iterator over the record batches of a capture or a device.
//!
//! Each run has its own thread and a short queue of batches for the consumer. A capture waits while the queue is full.
//! A device cannot wait, so its rows are then lost and counted.
//!
//! ```
//! # use features::{Options, pcap::Run, schema, stream::CaptureStream};
//! let mut capture = packet::pcap::Writer::new(Vec::new(), packet::pcap::ETHERNET)?;
//! let (from, to) = ("192.0.2.1:7".parse()?, "192.0.2.2:9".parse()?);
//! capture.write(0, &packet::build::udp(from, to).frame())?;
//! let capture = std::io::Cursor::new(capture.finish()?);
//!
//! let schema = schema::find("cic.v1").ok_or("no such schema")?;
//! let run = Run { options: Options::default(), schema };
//! let mut rows = 0;
//! for batch in CaptureStream::start(run, capture)? {
//!     rows += batch?.num_rows();
//! }
//! assert_eq!(rows, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod capture;
mod live;
mod row_file;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow_array::RecordBatch;

use crate::counters::Imbalance;
use crate::pcap::Fault;
use crate::sink::{
    Error as SinkError, Mode, SchemaRef, Scorer, ScoringSink, Sink, UnscoredRows, scored_schema,
};

pub use capture::CaptureStream;
pub use live::{LiveHandle, LiveStream};
pub use row_file::SavedStream;

/// The queue of an input that can wait. It overlaps reading with the consumer's work, and bounds the memory.
const DEPTH: usize = 4;

/// The result of waiting for rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Batch(RecordBatch),
    /// No batch arrived in time.
    Pending,
    /// No more batches will follow.
    End,
}

/// The reason that rows are missing or unreliable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Capture(#[from] Fault),
    #[error("{interface}: {why}")]
    Live { interface: String, why: String },
    #[error("{0}")]
    Rows(String),
    #[error("{0} rows are lost")]
    Lost(u64),
    #[error(transparent)]
    Unaccounted(#[from] Imbalance),
    #[error("the run has panicked")]
    Panicked,
}

/// The receiving end of a run that returns a `T`.
#[derive(Debug)]
struct Pull<T> {
    batches: Receiver<RecordBatch>,
    run: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Pull<T> {
    /// Starts a run that writes to the other end of `batches`.
    fn start(
        batches: Receiver<RecordBatch>,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let run = thread::Builder::new()
            .name("features-stream".to_owned())
            .spawn(run)?;
        Ok(Self {
            batches,
            run: Some(run),
        })
    }

    fn next_within(&self, patience: Duration) -> Next {
        match self.batches.recv_timeout(patience) {
            Ok(batch) => Next::Batch(batch),
            Err(RecvTimeoutError::Timeout) => Next::Pending,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    /// The result of the run, once. Waits for the run, but discards the rows that were not read.
    fn end(&mut self) -> Option<Result<T, Error>> {
        let (_nobody, nothing) = sync_channel(0);
        self.batches = nothing;
        let ended = self.run.take()?.join();
        Some(ended.map_err(|_| Error::Panicked))
    }
}

/// The writing end: passes batches on unchanged.
#[derive(Clone, Debug)]
struct BatchSink {
    batches: SyncSender<RecordBatch>,
    mode: Mode,
    /// Set when traffic has ended. The writer may then wait for the consumer.
    ending: Arc<AtomicBool>,
    lost: u64,
}

/// Both ends of a queue for `depth` batches.
fn queue(mode: Mode, depth: usize) -> (BatchSink, Receiver<RecordBatch>) {
    let (sender, batches) = sync_channel(depth);
    let outlet = BatchSink {
        batches: sender,
        mode,
        ending: Arc::default(),
        lost: 0,
    };
    (outlet, batches)
}

/// Adds a model in front of the queue, if there is one. Returns the output's schema, the sink and the unscored rows.
fn scored(
    rows: SchemaRef,
    outlet: BatchSink,
    scorer: Option<Box<dyn Scorer>>,
) -> (SchemaRef, Box<dyn Sink>, Option<UnscoredRows>) {
    let Some(scorer) = scorer else {
        return (rows, Box::new(outlet), None);
    };
    let scored = ScoringSink::new(Box::new(outlet), scorer, &rows, None);
    let unscored = scored.unscored();
    (scored_schema(&rows), Box::new(scored), Some(unscored))
}

impl Sink for BatchSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        let waits = self.mode == Mode::Whole || self.ending.load(Ordering::Relaxed);
        let taken = if waits {
            self.batches.send(batch.clone()).is_ok()
        } else {
            self.batches.try_send(batch.clone()).is_ok()
        };
        if taken {
            return Ok(());
        }
        self.lost += u64::try_from(batch.num_rows()).unwrap_or(0);
        match self.mode {
            Mode::Whole => Err(SinkError::Stuck),
            Mode::Live => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
