//! Rows from a file, with the results of a model.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_schema::SchemaRef;

use super::{DEPTH, Error, Next, Pull, queue, scored};
use crate::pcap::Progress;
use crate::row_file::SavedRows;
use crate::sink::{Mode, Scorer, Sink, UnscoredRows};

/// Batches of a file's rows.
#[derive(Debug)]
pub struct SavedStream {
    schema: SchemaRef,
    progress: Arc<Progress>,
    pull: Pull<Result<u64, String>>,
    /// Set once the end was returned.
    rows: Option<u64>,
    unscored: Option<UnscoredRows>,
}

impl SavedStream {
    /// Starts reading.
    pub fn start(rows: SavedRows, scorer: Box<dyn Scorer>) -> io::Result<Self> {
        let progress = Arc::<Progress>::default();
        let theirs = Arc::clone(&progress);
        let (outlet, batches) = queue(Mode::Whole, DEPTH);
        let (schema, sink, unscored) = scored(Arc::clone(rows.schema()), outlet, Some(scorer));
        Ok(Self {
            schema,
            progress,
            pull: Pull::start(batches, move || read(rows, sink, &theirs))?,
            rows: None,
            unscored,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Ends the run early.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The rows that were read, and those without a result from the model, once the end was returned.
    pub fn summary(&self) -> Option<(u64, u64)> {
        Some((self.rows?, self.unscored.as_ref()?.rows()))
    }

    /// The next batch, if it arrives in time. The end is returned once, with an error if something failed.
    pub fn next_within(&mut self, patience: Duration) -> Result<Next, Error> {
        match self.pull.next_within(patience) {
            Next::End => self.end().map(|()| Next::End),
            next => Ok(next),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        if let Some(ended) = self.pull.end() {
            self.rows = Some(ended?.map_err(Error::Rows)?);
        }
        Ok(())
    }
}

fn read(rows: SavedRows, mut sink: Box<dyn Sink>, progress: &Progress) -> Result<u64, String> {
    let mut written = 0;
    for batch in rows {
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        let batch = batch.map_err(|error| error.to_string())?;
        sink.write(&batch).map_err(|error| error.to_string())?;
        written += u64::try_from(batch.num_rows()).unwrap_or(0);
    }
    sink.finish().map_err(|error| error.to_string())?;
    Ok(written)
}

impl Drop for SavedStream {
    fn drop(&mut self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }
}
