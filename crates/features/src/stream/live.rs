//! The rows of a device as a stream.

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

/// The maximum number of batches that wait for the consumer.
const DEPTH: usize = 64;
/// The interval at which a running datapath is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Batches of a device's rows, until the capture is stopped. Dropping it detaches the datapath.
#[derive(Debug)]
pub struct LiveStream {
    interface: String,
    schema: SchemaRef,
    handle: LiveHandle,
    pull: Pull<Option<String>>,
}

/// Reads the counters of a capture and stops it, from any thread.
#[derive(Clone, Debug)]
pub struct LiveHandle(Arc<Watch>);

/// The state shared with the thread that owns the datapath.
#[derive(Debug, Default)]
struct Watch {
    stop: AtomicBool,
    counters: Mutex<LiveCounters>,
}

impl LiveStream {
    /// Starts a datapath for a limited time, or until stopped. The consumer gets the rows instead of the plan's sink.
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

    /// The next batch, if it arrives in time. The end is returned once, with an error if something failed.
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
    /// The counters since the start. They are exact once the end was returned.
    pub fn counters(&self) -> LiveCounters {
        *lock(&self.0.counters)
    }

    /// Stops the capture. The remaining rows can still be read, up to the end.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Runs a datapath to its end. Returns the error if it failed.
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
