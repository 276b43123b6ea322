//! Runs a sink in its own thread behind a bounded queue, so that a slow output does not delay the capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;

use super::{Backlog, Error, Mode, Sink};

/// The maximum number of waiting batches.
pub(super) const DEPTH: usize = 32;
/// The interval of [`Sink::idle`] calls while there is nothing to write.
const IDLE: Duration = Duration::from_millis(200);
/// The time after which a live run stops waiting for an output without progress. It exceeds the delivery timeout of a
/// sink and one more attempt to connect.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends batches to a sink's thread. A full queue blocks the sender or, in a live run, loses its rows.
#[derive(Debug)]
pub struct Queue {
    mode: Mode,
    batches: Option<SyncSender<RecordBatch>>,
    done: Receiver<()>,
    shared: Arc<Shared>,
    waiting: Backlog,
    /// Rows passed to the queue.
    given: u64,
    /// Rows of these that the queue rejected.
    refused: u64,
}

/// The state that the thread publishes.
#[derive(Debug, Default)]
struct Shared {
    /// Rows passed to the sink, and rows that the sink or its failure lost.
    taken: AtomicU64,
    lost: AtomicU64,
    finished: AtomicBool,
    failed: AtomicBool,
    /// Set if the queue was dropped before anything was passed to it.
    abandoned: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Queue {
    /// Starts the thread.
    pub fn start(sink: Box<dyn Sink>, mode: Mode) -> Result<Self, Error> {
        Self::start_counting(sink, mode, Backlog::default())
    }

    /// Starts the thread, and counts the waiting batches in a [`Backlog`].
    pub fn start_counting(
        sink: Box<dyn Sink>,
        mode: Mode,
        waiting: Backlog,
    ) -> Result<Self, Error> {
        let (batches, work) = sync_channel(DEPTH);
        let (say_done, done) = sync_channel(1);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let taken = waiting.clone();
        thread::Builder::new()
            .name("features-sink".to_owned())
            .spawn(move || {
                theirs.serve(sink, &work, &taken);
                let _ = say_done.send(());
            })
            .map_err(Error::thread)?;
        Ok(Self {
            mode,
            batches: Some(batches),
            done,
            shared,
            waiting,
            given: 0,
            refused: 0,
        })
    }

    /// Waits for the thread. A live run waits only while the thread makes progress.
    fn wait(&self) {
        loop {
            let before = self.shared.taken.load(Ordering::Relaxed);
            match self.done.recv_timeout(DRAIN_TIMEOUT) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
            let stuck = before == self.shared.taken.load(Ordering::Relaxed);
            if self.mode == Mode::Live && stuck {
                return;
            }
        }
    }
}

impl Sink for Queue {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let rows = rows(batch);
        self.given += rows;
        // Counted before sending, because the receiver may be faster than this thread.
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        let refused = match (&self.batches, self.mode) {
            (None, _) => true,
            (Some(batches), Mode::Whole) => batches.send(batch.clone()).is_err(),
            (Some(batches), Mode::Live) => match batches.try_send(batch.clone()) {
                Ok(()) => false,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => true,
            },
        };
        if refused {
            self.waiting.0.fetch_sub(1, Ordering::Relaxed);
            self.refused += rows;
        }
        match self.shared.error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.batches = None;
        self.wait();
        if !self.shared.finished.load(Ordering::Acquire) {
            return Err(Error::Stuck);
        }
        self.shared.error().map_or(Ok(()), Err)
    }

    fn lost(&self) -> u64 {
        let lost = self.refused + self.shared.lost.load(Ordering::Relaxed);
        if self.batches.is_some() || self.shared.finished.load(Ordering::Acquire) {
            return lost;
        }
        // The thread is stuck: rows not yet passed to the sink are lost, and so are those that the sink holds.
        let taken = self.shared.taken.load(Ordering::Relaxed);
        lost + (self.given - self.refused).saturating_sub(taken)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.batches.is_some() && self.given == 0 {
            self.shared.abandoned.store(true, Ordering::Release);
            self.batches = None;
            // Wait, so that no partial file remains when the process exits immediately.
            let _ended = self.done.recv_timeout(DRAIN_TIMEOUT);
        }
    }
}

impl Shared {
    fn serve(&self, mut sink: Box<dyn Sink>, work: &Receiver<RecordBatch>, waiting: &Backlog) {
        let mut after_failure = 0;
        loop {
            let batch = work.recv_timeout(IDLE);
            if batch.is_ok() {
                waiting.0.fetch_sub(1, Ordering::Relaxed);
            }
            match batch {
                Ok(batch) if self.failed.load(Ordering::Relaxed) => after_failure += rows(&batch),
                Ok(batch) => {
                    let written = sink.write(&batch);
                    self.taken.fetch_add(rows(&batch), Ordering::Relaxed);
                    self.note(written);
                }
                Err(RecvTimeoutError::Timeout) => sink.idle(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.lost
                .store(sink.lost() + after_failure, Ordering::Relaxed);
        }
        if self.abandoned.load(Ordering::Acquire) {
            return sink.abandon();
        }
        let finished = sink.finish();
        self.lost
            .store(sink.lost() + after_failure, Ordering::Relaxed);
        self.note(finished);
        self.finished.store(true, Ordering::Release);
    }

    fn note(&self, result: Result<(), Error>) {
        let Err(error) = result else { return };
        if !self.failed.swap(true, Ordering::Relaxed)
            && let Ok(mut first) = self.error.lock()
        {
            *first = Some(error);
        }
    }

    /// Returns the first error once.
    fn error(&self) -> Option<Error> {
        self.error.lock().ok()?.take()
    }
}

fn rows(batch: &RecordBatch) -> u64 {
    u64::try_from(batch.num_rows()).unwrap_or(0)
}
