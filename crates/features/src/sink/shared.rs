//! One output for several workers, completed once all of them have finished.

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
    is_finished: bool,
}

impl Shared {
    pub fn new(sink: Box<dyn Sink>) -> Self {
        let state = State {
            sink,
            given: Vec::new(),
            open: 0,
            is_finished: false,
        };
        Self(Arc::new(Common {
            state: Mutex::new(state),
            all_finished: Condvar::new(),
        }))
    }

    /// One more worker's handle; all are asked for before any finishes.
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
        if std::mem::replace(&mut state.is_finished, true) {
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
