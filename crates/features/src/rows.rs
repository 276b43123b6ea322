//! From rows to a sink, a batch at a time.

use arrow_schema::SchemaRef;

use crate::batch::Batcher;
use crate::sink::{Error, Sink};

/// Rows of a batch: enough to pay for the columns' overhead, few enough to stay in the cache.
const BATCH: usize = 1024;

/// Collects rows and hands them on. Once its sink has failed it counts what it keeps back.
pub struct RowWriter<R: 'static> {
    batcher: Batcher<R>,
    rows: Vec<Box<R>>,
    sink: Box<dyn Sink>,
    failed: Option<Error>,
    /// Rows that the sink was given, and those that it was not.
    given: u64,
    kept_back: u64,
}

impl<R> RowWriter<R> {
    pub fn new(batcher: Batcher<R>, sink: Box<dyn Sink>) -> Self {
        Self {
            batcher,
            rows: Vec::with_capacity(BATCH),
            sink,
            failed: None,
            given: 0,
            kept_back: 0,
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        self.batcher.schema()
    }

    pub fn push(&mut self, row: Box<R>) {
        self.rows.push(row);
        if self.rows.len() == BATCH {
            self.flush();
        }
    }

    /// Hands on what has been collected.
    pub fn flush(&mut self) {
        let rows = u64::try_from(self.rows.len()).unwrap_or(0);
        if rows == 0 {
            return;
        }
        if self.failed.is_some() {
            self.kept_back += rows;
        } else {
            self.write(rows);
        }
        self.rows.clear();
    }

    fn write(&mut self, rows: u64) {
        let batch = self.batcher.batch(&self.rows).map_err(Error::batch);
        let result = match batch {
            Ok(batch) => {
                self.given += rows;
                self.sink.write(&batch)
            }
            Err(error) => {
                self.kept_back += rows;
                Err(error)
            }
        };
        self.failed = result.err();
    }

    /// Whether its sink takes no more.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Rows that the output has or will have, and rows that are lost so far.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.given.saturating_sub(self.sink.lost()),
            self.kept_back + self.sink.lost(),
        )
    }

    /// Completes the output: rows written, rows lost, and the error that lost them.
    pub fn finish(mut self) -> (u64, u64, Result<(), Error>) {
        self.flush();
        let finished = self.sink.finish();
        let result = match self.failed.take() {
            Some(error) => Err(error),
            None => finished,
        };
        let (written, lost) = self.counts();
        (written, lost, result)
    }
}

impl<R> std::fmt::Debug for RowWriter<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter")
            .field("given", &self.given)
            .field("kept_back", &self.kept_back)
            .finish_non_exhaustive()
    }
}
