//! The rows of a capture as a stream.

use std::io::{self, Read};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::{DEPTH, Error, Next, Pull, queue, scored};
use crate::pcap::{Captures, Progress, Run, Summary};
use crate::sink::{Mode, Scorer, UnscoredRows};

/// Batches of a capture's rows. After a fault in the capture, the rows from before it follow, and then the fault.
#[derive(Debug)]
pub struct CaptureStream {
    schema: SchemaRef,
    progress: Arc<Progress>,
    pull: Pull<Summary>,
    summary: Option<Summary>,
    unscored: Option<UnscoredRows>,
}

impl CaptureStream {
    /// Starts reading.
    pub fn start(run: Run, input: impl Read + Send + 'static) -> io::Result<Self> {
        Self::start_on(NonZeroU32::MIN, run, Captures::one(input), None)
    }

    /// Reads several captures with this many workers. With a model, each row includes the model's result.
    pub fn start_on(
        workers: NonZeroU32,
        run: Run,
        captures: Captures<'static>,
        scorer: Option<Box<dyn Scorer>>,
    ) -> io::Result<Self> {
        let progress = Arc::<Progress>::default();
        let theirs = Arc::clone(&progress);
        let (outlet, batches) = queue(Mode::Whole, DEPTH);
        let (schema, sink, unscored) = scored(run.arrow_schema(), outlet, scorer);
        let read = move || run.run_on(workers, captures, sink, &theirs);
        Ok(Self {
            schema,
            progress,
            pull: Pull::start(batches, read)?,
            summary: None,
            unscored,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The progress of the run. It can also end the run early; the frames that were read are still exported.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The summary of the run, once the end of the stream was returned.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Rows so far without a result from the model; `None` without a model.
    pub fn unscored(&self) -> Option<u64> {
        self.unscored.as_ref().map(UnscoredRows::rows)
    }

    /// The next batch, if it arrives in time. The end is returned once, with an error if something failed.
    pub fn next_within(&mut self, patience: Duration) -> Result<Next, Error> {
        match self.pull.next_within(patience) {
            Next::End => self.end().map(|()| Next::End),
            next => Ok(next),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.pull.end() {
            Some(summary) => self.summary.insert(summary?).check().map_err(Error::from),
            None => Ok(()),
        }
    }
}

impl Iterator for CaptureStream {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_within(Duration::MAX) {
            Ok(Next::Batch(batch)) => Some(Ok(batch)),
            Ok(Next::Pending | Next::End) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        // The thread is not joined, because its input may never end. It stops at its next packet or batch.
        self.progress.stop.store(true, Ordering::Relaxed);
    }
}
