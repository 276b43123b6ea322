//! The thread that relays, and the lock by which others get at what it relays with.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use datapath::Error;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

use super::engine::Engine;

/// How soon a device that held up copies is asked again.
const RETRY_MS: u8 = 1;

#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    engine: Mutex<Engine>,
    /// How many wait for the engine: the thread lets them go first, since a mutex does not.
    waiting: AtomicU32,
    stopping: AtomicBool,
    sleep: Arc<Epoll>,
    wake: EventFd,
}

impl Worker {
    /// Starts the thread, which sleeps on `sleep` as long as nothing arrives.
    pub(super) fn start(
        engine: Engine,
        sleep: Arc<Epoll>,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let failed = |error| Error::failed("the af-xdp thread's event descriptor", error);
        let wake = EventFd::new().map_err(failed)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::MAX);
        sleep.add(&wake, event).map_err(failed)?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            waiting: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            sleep,
            wake,
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("relay-af-xdp".into())
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = sys::sched::pin(cpu)
                {
                    tracing::warn!(cpu, %error, "runs unpinned");
                }
                for_thread.run();
            })
            .map_err(|error| Error::failed("starting the af-xdp thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Does something with the engine, between two of the thread's rounds.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        let mut engine = self.shared.lock();
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
        work(&mut engine)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread. What it had not relayed is left to [`Self::with`].
    pub(super) fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // It fails only when the counter is full, which wakes as well.
        let _ = self.shared.wake.write(1);
        if let Some(thread) = self.thread.take() {
            // The thread returns no error, and a panic in it has already been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Engine> {
        // Frames and counters are whole between the engine's steps.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = [EpollEvent::empty()];
        while !self.stopping.load(Ordering::SeqCst) {
            while self.waiting.load(Ordering::SeqCst) > 0 {
                thread::yield_now();
            }
            let (received, waiting) = {
                let mut engine = self.lock();
                (engine.round(), engine.is_waiting())
            };
            if received > 0 {
                continue;
            }
            let timeout = if waiting {
                EpollTimeout::from(RETRY_MS)
            } else {
                EpollTimeout::NONE
            };
            match self.sleep.wait(&mut events, timeout) {
                Ok(_) | Err(Errno::EINTR) => (),
                Err(error) => return tracing::error!("waiting for datagrams: {error}"),
            }
        }
    }
}
