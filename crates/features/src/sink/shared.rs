//! One output for several workers, completed once all of them have finished, or later.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;

use super::{Error, Sink};

/// An output that workers ask for their handles.
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
    /// Rows that each handle has given.
    given: Vec<u64>,
    /// Handles that have not finished.
    open: usize,
    /// Completed by [`Shared::complete`], not with the last handle.
    persistent: bool,
    is_finished: bool,
}

/// The rows of an output that is complete.
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

    /// An output for workers that end while others are still to start: [`Self::complete`] completes it. What a
    /// handle has lost is known only then.
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

    /// One more worker's handle; unless the output outlives its handles, all are asked for before any
    /// finishes.
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

    /// Waits for the others: only then it is known which rows are lost.
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

    /// Nobody knows whose rows were lost: the handles take on as many as each has given, in turn.
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
