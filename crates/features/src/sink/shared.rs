//! One output for several workers. It is completed when all of them have finished, or later on request.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;

use super::{Error, Sink};

/// An output that provides handles for workers.
#[derive(Clone)]
pub struct Shared(Arc<Common>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let handles = self.0.lock().given.len();
        f.debug_struct("Shared").field("handles", &handles).finish()
    }
}

struct Common {
    state: Mutex<State>,
    all_finished: Condvar,
}

struct State {
    sink: Box<dyn Sink>,
    /// Rows passed by each handle.
    given: Vec<u64>,
    /// The number of handles that have not finished.
    open: usize,
    /// Whether the output is completed by [`Shared::complete`] instead of by the last handle.
    persistent: bool,
    is_finished: bool,
}

/// The rows of a completed output.
#[derive(Debug)]
pub struct Completion {
    pub rows: u64,
    pub lost_rows: u64,
    pub result: Result<(), Error>,
}

impl Shared {
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self::with(sink, false)
    }

    /// An output for workers that end while others have not started. [`Self::complete`] completes it. The lost rows of
    /// a handle are known only then.
    pub fn persistent(sink: Box<dyn Sink>) -> Self {
        Self::with(sink, true)
    }

    fn with(sink: Box<dyn Sink>, persistent: bool) -> Self {
        let state = State {
            sink,
            given: Vec::new(),
            open: 0,
            persistent,
            is_finished: false,
        };
        Self(Arc::new(Common {
            state: Mutex::new(state),
            all_finished: Condvar::new(),
        }))
    }

    /// Completes the output, once all handles have finished.
    pub fn complete(&self) -> Completion {
        let mut state = self.0.lock();
        let result = match std::mem::replace(&mut state.is_finished, true) {
            true => Ok(()),
            false => state.sink.finish(),
        };
        let lost_rows = state.sink.lost();
        Completion {
            rows: state.given.iter().sum::<u64>().saturating_sub(lost_rows),
            lost_rows,
            result,
        }
    }

    /// Creates a handle for a worker. Unless the output is persistent, all handles must be created before any finishes.
    pub fn handle(&self) -> Box<dyn Sink> {
        let mut state = self.0.lock();
        state.open += 1;
        state.given.push(0);
        Box::new(Handle {
            number: state.given.len() - 1,
            is_open: true,
            common: Arc::clone(&self.0),
        })
    }
}

impl Common {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Handle {
    number: usize,
    is_open: bool,
    common: Arc<Common>,
}

impl Handle {
    fn close<'a>(is_open: &mut bool, common: &'a Common) -> MutexGuard<'a, State> {
        let mut state = common.lock();
        if std::mem::take(is_open) {
            state.open -= 1;
        }
        if state.open == 0 {
            common.all_finished.notify_all();
        }
        state
    }
}

impl Sink for Handle {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let mut state = self.common.lock();
        state.given[self.number] += u64::try_from(batch.num_rows()).unwrap_or(0);
        state.sink.write(batch)
    }

    fn idle(&mut self) {
        self.common.lock().sink.idle();
    }

    /// Waits for the other handles, because the lost rows are known only then.
    fn finish(&mut self) -> Result<(), Error> {
        let state = Self::close(&mut self.is_open, &self.common);
        let all_finished = &self.common.all_finished;
        let mut state = all_finished
            .wait_while(state, |state| state.open > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if state.persistent || std::mem::replace(&mut state.is_finished, true) {
            return Ok(());
        }
        state.sink.finish()
    }

    /// The lost rows cannot be attributed to handles. Each handle in turn reports at most as many as it was given.
    fn lost(&self) -> u64 {
        let state = self.common.lock();
        let before: u64 = state.given[..self.number].iter().sum();
        let left = state.sink.lost().saturating_sub(before);
        left.min(state.given[self.number])
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(Self::close(&mut self.is_open, &self.common));
    }
}
