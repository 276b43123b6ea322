//! Keeps the CPUs from sleeping deeply during a trial, where the plan asks for it.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cpus;

/// How the CPUs are kept from sleeping deeply during trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdlePolicy {
    #[default]
    None,
    /// One SCHED_IDLE spinner a CPU.
    Burner,
    /// A request to the kernel that none enters a state it takes time to wake up from.
    CpuDmaLatency,
}

impl IdlePolicy {
    /// The policy as experiment files write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Burner => "burner",
            Self::CpuDmaLatency => "cpu_dma_latency",
        }
    }
}

/// A process that holds this file open tells the kernel how many microseconds its work can wait for a CPU to wake up.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps a policy in force until it is dropped.
#[derive(Debug)]
pub(crate) struct IdleGuard {
    stop: Arc<AtomicBool>,
    /// One spinning SCHED_IDLE thread a CPU: it yields to whatever else wants to run.
    burners: Vec<JoinHandle<()>>,
    _latency: Option<File>,
}

impl IdleGuard {
    /// Starts what `policy` asks for.
    pub(crate) fn start(policy: IdlePolicy) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = match policy {
            IdlePolicy::Burner => cpus::all()?,
            IdlePolicy::None | IdlePolicy::CpuDmaLatency => Vec::new(),
        };
        let latency = match policy {
            IdlePolicy::CpuDmaLatency => Some(no_latency().context(LATENCY)?),
            IdlePolicy::None | IdlePolicy::Burner => None,
        };
        let burners = cpus
            .into_iter()
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
        Ok(Self {
            stop,
            burners,
            _latency: latency,
        })
    }
}

fn no_latency() -> io::Result<File> {
    let mut request = File::options().write(true).open(LATENCY)?;
    request.write_all(&0_i32.to_ne_bytes())?;
    Ok(request)
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.burners.drain(..) {
            // A burner cannot panic; there is nothing to hear from it.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use sys::require::{Class, skip};

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

    fn wait_for_idlers(expected: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while idlers() != expected {
            assert!(Instant::now() < deadline, "{} of {expected}", idlers());
            thread::yield_now();
        }
    }

    #[test]
    fn a_burner_spins_on_every_cpu_until_dropped() {
        let cpus = cpus::all().unwrap().len();
        let burners = IdleGuard::start(IdlePolicy::Burner).unwrap();
        wait_for_idlers(cpus);
        drop(burners);
        // A thread stays listed for a moment after it was joined.
        wait_for_idlers(0);
        let none = IdleGuard::start(IdlePolicy::None).unwrap();
        assert!(none.burners.is_empty());
    }

    #[test]
    fn the_latency_that_the_kernel_keeps_to_is_none_until_dropped() {
        let keeps_to = || {
            let mut latency = [0; 4];
            File::open(LATENCY)
                .unwrap()
                .read_exact(&mut latency)
                .unwrap();
            i32::from_ne_bytes(latency)
        };
        if !sys::require::root() {
            return;
        }
        if !Path::new(LATENCY).exists() {
            skip(Class::Core, "the kernel has no /dev/cpu_dma_latency");
            return;
        }
        let before = keeps_to();
        let awake = IdleGuard::start(IdlePolicy::CpuDmaLatency).unwrap();
        assert_eq!(keeps_to(), 0);
        drop(awake);
        assert_eq!(keeps_to(), before);
    }
}
