//! A thread that forwards until it is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use datapath::Error;

use super::counters::Counters;
use super::forwarder::Forwarder;
use crate::gpu::cpu_fallback::FallbackProcessor;

#[derive(Debug)]
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
    counters: Arc<Mutex<Counters>>,
    /// Tables to look up by from now on, and whom to tell when it does.
    lookups: Sender<(FallbackProcessor, SyncSender<()>)>,
    handle: Option<JoinHandle<()>>,
    why: Arc<OnceLock<String>>,
}

impl Thread {
    pub(super) fn start(mut forwarder: Forwarder, cpu: Option<usize>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Mutex::new(Counters::default()));
        let (stopping, telling) = (Arc::clone(&stop), Arc::clone(&counters));
        let why = Arc::new(OnceLock::new());
        let failure = Arc::clone(&why);
        let (lookups, others) = channel::<(FallbackProcessor, SyncSender<()>)>();
        let handle = thread::Builder::new()
            .name("router-af-xdp".into())
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = sys::sched::pin(cpu)
                {
                    tracing::warn!(cpu, %error, "runs unpinned");
                }
                while !stopping.load(Ordering::Relaxed) {
                    if let Ok((lookup, done)) = others.try_recv() {
                        forwarder.look_up_by(lookup);
                        // Nobody waits who has gone.
                        let _sent = done.send(());
                    }
                    let received = forwarder.round();
                    *telling.lock().unwrap_or_else(PoisonError::into_inner) = forwarder.counters();
                    let received = match received {
                        Ok(received) => received,
                        Err(error) => {
                            failure.get_or_init(|| error.to_string());
                            return tracing::error!("{error}");
                        }
                    };
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
            lookups,
            why,
            handle: Some(handle),
        })
    }

    pub(super) fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it look up by these tables from its next batch on. Who receives knows when it does; or that
    /// it has ended.
    pub(super) fn look_up_by(&self, lookup: FallbackProcessor) -> Receiver<()> {
        let (done, when) = sync_channel(1);
        let _sent = self.lookups.send((lookup, done));
        when
    }

    /// What it ended of.
    pub(super) fn why(&self) -> Option<String> {
        self.why.get().cloned()
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
