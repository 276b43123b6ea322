//! The rows of a device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datapath::Datapath;

use super::{Error, Next, Pull, queue};
use crate::live::{Features, LiveCounters, Plan, Running};
use crate::sink::{Mode, Shared};

/// Batches that wait for whoever pulls.
const DEPTH: usize = 64;
/// Between two looks at a running datapath.
const LOOK: Duration = Duration::from_millis(100);

/// Batches of a device's rows, until stopped. Dropping it detaches the datapath.
#[derive(Debug)]
pub struct LiveStream {
    interface: String,
    schema: SchemaRef,
    handle: LiveHandle,
    pull: Pull<Option<String>>,
}

/// Counts and ends a capture from wherever its rows are not pulled.
#[derive(Clone, Debug)]
pub struct LiveHandle(Arc<Watch>);

/// What the thread that owns the datapath is told, and tells.
#[derive(Debug, Default)]
struct Watch {
    stop: AtomicBool,
    counters: Mutex<LiveCounters>,
}

impl LiveStream {
    /// Starts a datapath, for so long or until stopped. Rows go to whoever pulls, not to the plan's sink.
    pub fn start(
        datapath: &dyn Datapath<Features>,
        mut plan: Plan,
        duration: Option<Duration>,
    ) -> Result<Self, datapath::Error> {
        let schema = crate::arrow_schema(plan.schema, &plan.options);
        let (outlet, batches) = queue(Mode::Live, DEPTH);
        let ending = Arc::clone(&outlet.ending);
        let outlet = Shared::new(Box::new(outlet));
        plan.sink = Arc::new(move || outlet.handle());
        let running = datapath.start(&plan)?;
        let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
        let watch = Arc::<Watch>::default();
        let handle = LiveHandle(Arc::clone(&watch));
        let run = move || watch.run(running, deadline, &ending);
        let pull = Pull::start(batches, run)
            .map_err(|error| datapath::Error::failed("a thread for the rows", error))?;
        Ok(Self {
            interface: plan.interface,
            schema,
            handle,
            pull,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn handle(&self) -> &LiveHandle {
        &self.handle
    }

    /// The next batch, if it comes in time. The end is met once, and says what is wrong.
    pub fn next_within(&mut self, patience: Duration) -> Result<Next, Error> {
        match self.pull.next_within(patience) {
            Next::End => self.end().map(|()| Next::End),
            next => Ok(next),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(failed) = self.pull.end() else {
            return Ok(());
        };
        if let Some(why) = failed? {
            let interface = self.interface.clone();
            return Err(Error::Live { interface, why });
        }
        let counters = self.handle.counters();
        if counters.lost_rows > 0 {
            return Err(Error::Lost(counters.lost_rows));
        }
        counters.account.check().map_err(Error::from)
    }
}

impl LiveHandle {
    /// Counted since the start; exact once the end was met.
    pub fn counters(&self) -> LiveCounters {
        *lock(&self.0.counters)
    }

    /// Ends the capture. What is left can still be pulled, up to the end.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Owns a datapath until its end; why it failed, if it did.
    fn run(
        &self,
        running: Running,
        deadline: Option<Instant>,
        ending: &AtomicBool,
    ) -> Option<String> {
        let left = || {
            deadline.map_or(LOOK, |at| {
                at.saturating_duration_since(Instant::now()).min(LOOK)
            })
        };
        while running.failed().is_none() && !self.stop.load(Ordering::Relaxed) && !left().is_zero()
        {
            thread::park_timeout(left());
            *lock(&self.counters) = running.counters();
        }
        ending.store(true, Ordering::Relaxed);
        let ended = running.stop();
        *lock(&self.counters) = ended.counters;
        ended.failed
    }
}

impl Iterator for LiveStream {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_within(Duration::MAX) {
            Ok(Next::Batch(batch)) => Some(Ok(batch)),
            Ok(Next::Pending | Next::End) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        self.handle.stop();
        let _ended = self.pull.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
