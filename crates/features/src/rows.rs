//! From rows to a sink, a batch at a time.

use std::borrow::Borrow;

use arrow_schema::SchemaRef;

use crate::batch::{Batcher, Columns};
use crate::sink::{Error, Sink};

/// Rows of a batch: enough to pay for what a batch costs.
const BATCH: usize = 2048;
/// Rows that wait to be spread over the columns together: few enough to stay in the cache.
const BATCH_ROWS: usize = 64;

/// Collects rows and hands them on. Once its sink has failed it counts what it keeps back.
///
/// `H` is how it is given them: rows that are large are moved less in boxes.
pub struct RowWriter<R: 'static, H = Box<R>> {
    schema: SchemaRef,
    rows: Vec<H>,
    columns: Columns<R>,
    sink: Box<dyn Sink>,
    failed: Option<Error>,
    /// Rows that the sink was given, and those that it was not.
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

    /// Hands on what has been collected.
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

    /// Why its sink takes no more, if it does not.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
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

impl<R, H> std::fmt::Debug for RowWriter<R, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter")
            .field("given", &self.given)
            .field("kept_back", &self.kept_back)
            .finish_non_exhaustive()
    }
}
