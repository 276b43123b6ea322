//! The thread of every live datapath: takes frames, runs timers, publishes counters and finishes in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use datapath::{Error, Running};
use netdev::Netlink;

use super::{Features, LiveCounters, Plan, RunSummary};

/// The part of a datapath that a worker drives. Errors are messages for the user.
pub(super) trait Capturing: Send + 'static {
    /// Takes the frames that have arrived. Waits for them, but no longer than [`POLL_TIMEOUT`]. Returns whether any
    /// arrived.
    fn take(&mut self) -> Result<bool, String>;

    /// Exports the flows that have ended before this time.
    fn tick(&mut self, now_ns: i64) -> Result<(), String>;

    /// The counters since the start.
    fn counters(&mut self) -> Result<LiveCounters, String>;

    /// Exports the remaining flows and completes the output.
    fn finish(self) -> (LiveCounters, Result<(), String>);
}

/// The longest wait for a packet, and thus the longest delay of a stop.
pub(super) const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// The interval between checks for flows that have timed out.
const TICK: Duration = Duration::from_secs(1);

/// The workers of a started datapath.
#[derive(Debug)]
pub(super) struct Workers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    shared: Vec<Arc<Shared>>,
}

/// The state that a worker publishes.
#[derive(Debug, Default)]
struct Shared {
    counters: Mutex<LiveCounters>,
    failed: Mutex<Option<String>>,
}

impl Workers {
    /// Starts one worker thread for each item, under names that tools show. The workers end when the device is deleted.
    pub(super) fn start<C: Capturing>(
        name: &str,
        ifindex: u32,
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
                ifindex,
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

    fn end(&mut self) -> RunSummary {
        self.stop.store(true, Ordering::Relaxed);
        for (thread, shared) in self.threads.drain(..).zip(&self.shared) {
            // The last published counters of a worker that panicked are used.
            if thread.join().is_err() {
                shared.fail("a worker panicked".to_owned());
            }
        }
        RunSummary {
            counters: self.counters(),
            failed: self.failed(),
        }
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
        let said = |shared: &Arc<Shared>| lock(&shared.failed).clone();
        let ended = || self.threads.iter().any(JoinHandle::is_finished);
        self.shared
            .iter()
            .find_map(said)
            .or_else(|| ended().then(|| "a worker has ended".to_owned()))
    }

    fn stop(mut self: Box<Self>) -> RunSummary {
        self.end()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Records an error, unless there already is one.
    fn fail(&self, why: String) {
        lock(&self.failed).get_or_insert(why);
    }
}

struct Worker<C> {
    capturing: C,
    ifindex: u32,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

impl<C: Capturing> Worker<C> {
    fn run(mut self) {
        // Publish the error before finishing, which waits for the other workers: they do not end by themselves.
        if let Err(why) = self.capture() {
            self.shared.fail(why);
        }
        let (counters, finished) = self.capturing.finish();
        *lock(&self.shared.counters) = counters;
        if let Err(why) = finished {
            self.shared.fail(why);
        }
    }

    fn capture(&mut self) -> Result<(), String> {
        let mut tick = now_ns();
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(why) = self.capturing.take() {
                return self.explain(why);
            }
            let now = now_ns();
            if now - tick >= nanoseconds(TICK) {
                tick = now;
                self.find_device()?;
                // Frames stamped before now may still be in the source, so the tick lags by one interval.
                self.capturing.tick(now - nanoseconds(TICK))?;
                *lock(&self.shared.counters) = self.capturing.counters()?;
            }
        }
        self.drain()
    }

    /// Fails if the device was deleted. Rings and kernel programs do not report this: packets merely stop arriving.
    fn find_device(&self) -> Result<(), String> {
        let link = Netlink::new().and_then(|mut netlink| netlink.link_by_index(self.ifindex));
        match link {
            Err(netdev::Error::NoInterface(_)) => Err("the interface was deleted".to_owned()),
            _ => Ok(()),
        }
    }

    /// A device goes down before it is deleted, and a socket only reports that it is down. Waits until it is clear
    /// whether the device is deleted as well.
    fn explain(&self, why: String) -> Result<(), String> {
        let deadline = Instant::now() + TICK;
        while Instant::now() < deadline {
            self.find_device()?;
            thread::sleep(POLL_TIMEOUT / 10);
        }
        Err(why)
    }

    /// Takes the frames that arrived before the stop, for a limited time.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: u32 = 1;

    /// Fails as configured.
    struct Faulty {
        takes: Result<bool, String>,
        finishes: Result<(), String>,
        panics: bool,
    }

    impl Capturing for Faulty {
        fn take(&mut self) -> Result<bool, String> {
            assert!(!self.panics, "on purpose");
            thread::yield_now();
            self.takes.clone()
        }

        fn tick(&mut self, _now_ns: i64) -> Result<(), String> {
            Ok(())
        }

        fn counters(&mut self) -> Result<LiveCounters, String> {
            Ok(LiveCounters::default())
        }

        fn finish(self) -> (LiveCounters, Result<(), String>) {
            let counters = LiveCounters {
                rows: 7,
                ..LiveCounters::default()
            };
            (counters, self.finishes)
        }
    }

    fn ended(faulty: Faulty) -> RunSummary {
        Workers::start("faulty", LOOPBACK, vec![faulty])
            .unwrap()
            .stop()
    }

    #[test]
    fn what_goes_wrong_at_the_end_is_told_beside_the_last_counters() {
        let ended = ended(Faulty {
            takes: Ok(false),
            finishes: Err("the disk is full".to_owned()),
            panics: false,
        });
        assert_eq!(ended.failed.as_deref(), Some("the disk is full"));
        assert_eq!(ended.counters.rows, 7);
    }

    #[test]
    fn the_first_failure_is_told() {
        let ended = ended(Faulty {
            takes: Err("the device is gone".to_owned()),
            finishes: Err("and the disk is full".to_owned()),
            panics: false,
        });
        assert_eq!(ended.failed.as_deref(), Some("the device is gone"));
        assert_eq!(ended.counters.rows, 7);
    }

    #[test]
    fn a_worker_that_panics_has_failed() {
        let faulty = Faulty {
            takes: Ok(false),
            finishes: Ok(()),
            panics: true,
        };
        let running = Workers::start("faulty", LOOPBACK, vec![faulty]).unwrap();
        while running.failed().is_none() {
            thread::yield_now();
        }
        let failed = running.stop().failed;
        assert_eq!(failed.as_deref(), Some("a worker panicked"));
    }
}
