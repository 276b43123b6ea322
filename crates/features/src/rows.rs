//! Passes rows to a sink in batches.

use std::borrow::Borrow;

use arrow_schema::SchemaRef;

use crate::batch::{Batcher, Columns};
use crate::sink::{Error, Sink};

/// Rows of a batch. The number is large enough to amortize the fixed cost of a batch.
const BATCH: usize = 2048;
/// Rows that are added to the columns together. The number is small enough for them to stay in the cache.
const BATCH_ROWS: usize = 64;

/// Collects rows and passes them to a sink. After the sink has failed, it only counts the rows.
///
/// `H` is the type that holds a row. Boxes make large rows cheaper to move.
pub struct RowWriter<R: 'static, H = Box<R>> {
    schema: SchemaRef,
    rows: Vec<H>,
    columns: Columns<R>,
    sink: Box<dyn Sink>,
    failed: Option<Error>,
    /// Rows passed to the sink, and rows withheld after it failed.
    given: u64,
    kept_back: u64,
}

impl<R, H: Borrow<R>> RowWriter<R, H> {
    pub fn new(batcher: &Batcher<R>, sink: Box<dyn Sink>) -> Self {
        Self {
            schema: batcher.schema().clone(),
            rows: Vec::with_capacity(BATCH_ROWS),
            columns: batcher.columns(BATCH),
            sink,
            failed: None,
            given: 0,
            kept_back: 0,
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn push(&mut self, row: H) {
        self.rows.push(row);
        if self.rows.len() == BATCH_ROWS {
            self.gather();
            if self.columns.rows() >= BATCH {
                self.write();
            }
        }
    }

    /// Passes the collected rows to the sink.
    pub fn flush(&mut self) {
        self.gather();
        if self.columns.rows() > 0 {
            self.write();
        }
    }

    fn gather(&mut self) {
        if self.failed.is_some() {
            self.kept_back += u64::try_from(self.rows.len()).unwrap_or(0);
        } else {
            self.columns.add(&self.rows);
        }
        self.rows.clear();
    }

    fn write(&mut self) {
        let rows = u64::try_from(self.columns.rows()).unwrap_or(0);
        let result = match self.columns.take() {
            Ok(batch) => {
                self.given += rows;
                self.sink.write(&batch)
            }
            Err(error) => {
                self.kept_back += rows;
                Err(Error::batch(error))
            }
        };
        self.failed = result.err();
    }

    /// The error after which the sink accepts no more rows, if there was one.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Rows written or waiting to be written, and rows lost so far.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.given.saturating_sub(self.sink.lost()),
            self.kept_back + self.sink.lost(),
        )
    }

    /// Completes the output. Returns the rows written, the rows lost, and the error that lost them.
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

impl<R, H> std::fmt::Debug for RowWriter<R, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter")
            .field("given", &self.given)
            .field("kept_back", &self.kept_back)
            .finish_non_exhaustive()
    }
}
