//! A thread that forwards until it is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use datapath::Error;

use super::counters::Counters;
use super::forwarder::Forwarder;

#[derive(Debug)]
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
    counters: Arc<Mutex<Counters>>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    pub(super) fn start(mut forwarder: Forwarder, cpu: Option<usize>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Mutex::new(Counters::default()));
        let (stopping, telling) = (Arc::clone(&stop), Arc::clone(&counters));
        let handle = thread::Builder::new()
            .name("router-af-xdp".into())
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = sys::sched::pin(cpu)
                {
                    tracing::warn!(cpu, %error, "runs unpinned");
                }
                while !stopping.load(Ordering::Relaxed) {
                    let received = forwarder.round();
                    *telling.lock().unwrap_or_else(PoisonError::into_inner) = forwarder.counters();
                    if received == 0
                        && let Err(error) = forwarder.wait()
                    {
                        return tracing::error!("waiting for packets: {error}");
                    }
                }
                let last = forwarder.finish();
                *telling.lock().unwrap_or_else(PoisonError::into_inner) = last;
            })
            .map_err(|error| Error::failed("starting an af-xdp thread", error))?;
        Ok(Self {
            stop,
            counters,
            handle: Some(handle),
        })
    }

    pub(super) fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, once it has forwarded what has come.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // A panic of its has been printed.
            let _ended = handle.join();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop();
    }
}
