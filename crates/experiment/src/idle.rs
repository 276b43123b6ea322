//! Keeps the CPUs from sleeping deeply during a trial, where the plan asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Result;

use crate::plan::IdlePolicy;

/// One spinning SCHED_IDLE thread a CPU: it yields to whatever else wants to run. Stops when
/// dropped.
#[derive(Debug)]
pub(crate) struct Burners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burners {
    /// Starts what `policy` asks for.
    pub(crate) fn start(policy: IdlePolicy) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = match policy {
            IdlePolicy::None => 0,
            IdlePolicy::Burner => thread::available_parallelism()?.get(),
        };
        let threads = (0..cpus)
            .map(|cpu| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    // A burner at another priority or place would compete with the trial.
                    if sys::sched::pin(cpu)
                        .and_then(|()| sys::sched::idle())
                        .is_err()
                    {
                        return;
                    }
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        Ok(Self { stop, threads })
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A burner cannot panic; there is nothing to hear from it.
            let _ended = thread.join();
        }
    }
}
