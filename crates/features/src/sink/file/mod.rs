//! File outputs: written under a temporary name until complete, rotated by size and time, and readable even after
//! disk errors.

mod format;
mod frames;
mod name;
mod parquet;
mod store;

use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use format::Format;
pub(crate) use frames::FrameFiles;
pub use frames::Series;

use super::{Error, Mode, Sink};
use format::{Chunk, Encoder};
use name::Names;
use store::Store;

/// The delay before a live run tries again to open a file.
const RETRY: Duration = Duration::from_secs(1);

/// The conditions for completing a file and beginning another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The approximate size in bytes.
    pub size: Option<u64>,
    /// The maximum age.
    pub every: Option<Duration>,
}

/// One or more files, or standard output under the name `-`.
#[derive(Debug)]
pub struct FileSink {
    names: Names,
    format: Format,
    schema: SchemaRef,
    rotation: Rotation,
    mode: Mode,
    open: Option<Open>,
    /// The time of the last failed attempt in a live run.
    failed: Option<Instant>,
    lost: u64,
}

/// A file that is being written.
#[derive(Debug)]
struct Open {
    store: Store,
    encoder: Encoder,
    since: Instant,
    /// Rows passed to the file, and rows of these that are on the disk.
    given: u64,
    stored: u64,
}

impl FileSink {
    /// Opens the first file, so that an invalid path is reported before the run begins.
    pub fn create(
        path: &Path,
        format: Format,
        schema: &SchemaRef,
        rotation: Rotation,
        mode: Mode,
    ) -> Result<Self, Error> {
        let mut sink = Self {
            names: Names::new(path, rotation != Rotation::default())?,
            format,
            schema: schema.clone(),
            rotation,
            mode,
            open: None,
            failed: None,
            lost: 0,
        };
        match sink.open() {
            // The first write detects the closed pipe and ends the run without a failure.
            Err(error) if error.is_closed_pipe() => {}
            opened => opened?,
        }
        Ok(sink)
    }

    fn open(&mut self) -> Result<(), Error> {
        let mut store = self.names.open()?;
        let started = Encoder::start(self.format, &self.schema, store.path())
            .and_then(|(encoder, head)| store.commit(&head).map(|()| encoder));
        let encoder = started.inspect_err(|_| store.discard())?;
        self.open = Some(Open {
            store,
            encoder,
            since: Instant::now(),
            given: 0,
            stored: 0,
        });
        Ok(())
    }

    fn put(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if let Some(open) = &mut self.open {
            open.put(batch)?;
        }
        if self.is_due() {
            self.close()?;
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.given > 0) else {
            return false;
        };
        let Rotation { size, every } = self.rotation;
        size.is_some_and(|size| open.size() >= size)
            || every.is_some_and(|every| open.since.elapsed() >= every)
    }

    /// Completes the file. Rows that could not be written are lost.
    fn close(&mut self) -> Result<(), Error> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        let closed = open.close();
        self.lost += open.given - open.stored;
        closed
    }

    /// After an error, keeps the stored data and counts the remaining rows as lost.
    fn abandon(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.abandon();
            self.lost += open.given - open.stored;
        }
    }

    /// In a live run, an error only loses rows, and writing is retried later.
    fn survive(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = result else {
            self.failed = None;
            return Ok(());
        };
        self.abandon();
        if self.mode == Mode::Whole || error.is_closed_pipe() {
            return Err(error);
        }
        if self.failed.is_none() {
            tracing::warn!("{error}; rows are lost until it can be written again");
        }
        self.failed = Some(Instant::now());
        Ok(())
    }
}

impl Sink for FileSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if self.open.is_none() {
            let waits = |failed: Instant| failed.elapsed() < RETRY;
            if self.failed.is_some_and(waits) {
                self.lost += rows(batch);
                return Ok(());
            }
            if let Err(error) = self.open() {
                self.lost += rows(batch);
                return self.survive(Err(error));
            }
        }
        let result = self.put(batch);
        self.survive(result)
    }

    fn idle(&mut self) {
        if self.is_due() {
            let closed = self.close();
            let _ = self.survive(closed);
        }
    }

    fn abandon(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.abandon();
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        let closed = self.close();
        self.survive(closed)
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

impl Open {
    fn put(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.given += rows(batch);
        if let Some(chunk) = self.encoder.rows(batch)? {
            self.commit(&chunk)?;
        }
        Ok(())
    }

    fn commit(&mut self, chunk: &Chunk) -> Result<(), Error> {
        self.store.commit(chunk)?;
        self.stored += chunk.rows;
        self.encoder.stored();
        Ok(())
    }

    /// The size of the file in bytes if it were completed now.
    fn size(&self) -> u64 {
        self.store.len() + self.encoder.pending()
    }

    /// Does not close the file on an error; the caller abandons it.
    fn close(&mut self) -> Result<(), Error> {
        let closed = self.last().and_then(|()| self.tail());
        if closed.is_err() {
            self.abandon();
        }
        closed
    }

    fn last(&mut self) -> Result<(), Error> {
        match self.encoder.rest()? {
            Some(chunk) => self.commit(&chunk),
            None => Ok(()),
        }
    }

    fn tail(&mut self) -> Result<(), Error> {
        let tail = self.encoder.tail()?;
        self.store.complete(&tail)
    }

    /// Completes the file with the stored chunks. The space for the end was reserved.
    fn abandon(&mut self) {
        let kept = self.stored > 0 && self.tail().is_ok();
        if !kept {
            self.store.discard();
            self.stored = 0;
        }
    }
}

fn rows(batch: &RecordBatch) -> u64 {
    u64::try_from(batch.num_rows()).unwrap_or(0)
}
