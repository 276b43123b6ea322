//! The thread that every live datapath has: take what arrives, keep time, tell, end in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use datapath::{Error, Running};

use super::{Features, LiveCounters, Plan};

/// What a worker drives. Errors are words for whoever runs the datapath.
pub(super) trait Capturing: Send + 'static {
    /// Takes what has arrived; waits for it, but no longer than [`PATIENCE`]. Whether there was
    /// anything.
    fn take(&mut self) -> Result<bool, String>;

    /// Exports what has ended before this time.
    fn tick(&mut self, now_ns: i64) -> Result<(), String>;

    /// Counted since the start.
    fn counters(&mut self) -> Result<LiveCounters, String>;

    /// Exports what is left, and completes the output.
    fn finish(self) -> (LiveCounters, Result<(), String>);
}

/// The longest wait for a packet: a stop is noticed after it.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks at flows that may have ended by time alone.
const TICK: Duration = Duration::from_secs(1);

/// The workers of a started datapath.
#[derive(Debug)]
pub(super) struct Workers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    shared: Vec<Arc<Shared>>,
}

/// What a worker tells.
#[derive(Debug, Default)]
struct Shared {
    counters: Mutex<LiveCounters>,
    failed: Mutex<Option<String>>,
}

impl Workers {
    /// Starts a worker for each, under names that tools show.
    pub(super) fn start<C: Capturing>(
        name: &str,
        all: Vec<C>,
    ) -> Result<Box<dyn Running<Features>>, Error> {
        let mut workers = Self {
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            shared: Vec::new(),
        };
        for (index, capturing) in all.into_iter().enumerate() {
            let shared = Arc::<Shared>::default();
            let worker = Worker {
                capturing,
                shared: Arc::clone(&shared),
                stop: Arc::clone(&workers.stop),
            };
            let thread = thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || worker.run())
                .map_err(|error| Error::failed("a worker thread", error))?;
            workers.threads.push(thread);
            workers.shared.push(shared);
        }
        Ok(Box::new(workers))
    }

    fn end(&mut self) -> LiveCounters {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so, and its counters stand as they were.
            let _ended = thread.join();
        }
        self.counters()
    }
}

impl Running<Features> for Workers {
    fn reconfigure(&mut self, _plan: &Plan) -> Result<(), Error> {
        Err(Error::Plan(
            "a capture keeps its plan: stop it and start another".into(),
        ))
    }

    fn counters(&self) -> LiveCounters {
        self.shared
            .iter()
            .map(|shared| *lock(&shared.counters))
            .fold(LiveCounters::default(), LiveCounters::and)
    }

    fn failed(&self) -> Option<String> {
        self.shared
            .iter()
            .find_map(|shared| lock(&shared.failed).clone())
    }

    fn stop(mut self: Box<Self>) -> LiveCounters {
        self.end()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker<C> {
    capturing: C,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

impl<C: Capturing> Worker<C> {
    fn run(mut self) {
        let captured = self.capture();
        let (counters, finished) = self.capturing.finish();
        *lock(&self.shared.counters) = counters;
        if let Err(why) = captured.and(finished) {
            *lock(&self.shared.failed) = Some(why);
        }
    }

    fn capture(&mut self) -> Result<(), String> {
        let mut tick = now_ns();
        while !self.stop.load(Ordering::Relaxed) {
            self.capturing.take()?;
            let now = now_ns();
            if now - tick >= nanoseconds(TICK) {
                tick = now;
                // What was stamped before now may still wait in the source.
                self.capturing.tick(now - nanoseconds(TICK))?;
                *lock(&self.shared.counters) = self.capturing.counters()?;
            }
        }
        self.drain()
    }

    /// What has arrived before the stop is still taken, unless it never ends.
    fn drain(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + TICK;
        while self.capturing.take()? && Instant::now() < deadline {}
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, nanoseconds)
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
