//! Keeps the CPUs from sleeping deeply during a trial, where the plan asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Result;

use crate::plan::IdlePolicy;

/// The policy as experiment files write it.
pub(crate) fn name(policy: IdlePolicy) -> &'static str {
    match policy {
        IdlePolicy::None => "none",
        IdlePolicy::Burner => "burner",
    }
}

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;

    /// Threads of this process under SCHED_IDLE, the 41st field of their stat.
    fn idlers() -> usize {
        let policy =
            |stat: String| Some(stat.rsplit_once(')')?.1.split_whitespace().nth(38)? == "5");
        fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok())
            .filter(|stat| policy(stat.clone()) == Some(true))
            .count()
    }

    #[test]
    fn a_burner_spins_on_every_cpu_until_dropped() {
        let cpus = thread::available_parallelism().unwrap().get();
        let burners = Burners::start(IdlePolicy::Burner).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while idlers() < cpus {
            assert!(Instant::now() < deadline, "{} of {cpus}", idlers());
            thread::yield_now();
        }
        drop(burners);
        assert_eq!(idlers(), 0);
        let none = Burners::start(IdlePolicy::None).unwrap();
        assert!(none.threads.is_empty());
    }
}
