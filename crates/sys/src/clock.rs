//! Reading time, and finding out when a CPU was taken away.

use std::io;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crate::sched;

/// CLOCK_MONOTONIC in nanoseconds: the clock that `bpf_ktime_get_ns` reads.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` outlives the call; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The CPU's cycle counter: cheaper to read than a clock, in a unit of its own. Where there is
/// none, nanoseconds.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space use it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

/// Ticks in a nanosecond, measured once over 10 ms.
pub fn ticks_per_ns() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start_ns, start) = (monotonic_ns(), ticks());
        while monotonic_ns() - start_ns < 10_000_000 {
            std::hint::spin_loop();
        }
        let (end_ns, end) = (monotonic_ns(), ticks());
        as_f64(end - start) / as_f64(end_ns - start_ns)
    })
}

/// The share of one CPU's time that went to something other than a thread that only spun.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gaps {
    pub cpu: usize,
    /// Per cent of the time lost in gaps above 2 us.
    pub lost_pct: f64,
    pub longest_ns: u64,
    /// Gaps above 2 us and above 100 us.
    pub above_2_us: u64,
    pub above_100_us: u64,
}

/// Spins `window` (100 ms is usual) on each of `cpus` in turn and looks for jumps of the cycle
/// counter: what interrupts, other tasks, or a hypervisor took. Never run it during a trial.
///
/// # Errors
/// A CPU is not there, or not allowed to this process.
pub fn gaps(cpus: &[usize], window: Duration) -> io::Result<Vec<Gaps>> {
    cpus.iter()
        .map(|&cpu| {
            thread::spawn(move || {
                sched::pin(cpu)?;
                Ok(spin(cpu, window))
            })
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the gap detector's thread died")))
        })
        .collect()
}

fn spin(cpu: usize, window: Duration) -> Gaps {
    let rate = ticks_per_ns();
    let window_ns = as_f64(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
    let mut counted = Counter::new(rate, cpu);
    let start = ticks();
    let end = start + as_ticks(window_ns * rate);
    let mut last = start;
    while last < end {
        let now = ticks();
        counted.step(now.saturating_sub(last));
        last = now;
    }
    counted.finish(last - start)
}

/// Sorts steps of the counter into gaps; apart from the spinning so that it can be tested.
struct Counter {
    rate: f64,
    two_us: u64,
    cpu: usize,
    /// Ticks of each gap.
    found: Vec<u64>,
}

impl Counter {
    fn new(rate: f64, cpu: usize) -> Self {
        Self {
            rate,
            two_us: as_ticks(2_000.0 * rate),
            cpu,
            // No allocation while it spins: a thousand timer interrupts a second, and as much again.
            found: Vec::with_capacity(4096),
        }
    }

    #[inline]
    fn step(&mut self, step: u64) {
        if step > self.two_us {
            self.found.push(step);
        }
    }

    /// `total` ticks were watched.
    fn finish(self, total: u64) -> Gaps {
        let ns = |ticks: u64| as_ticks(as_f64(ticks) / self.rate);
        let lost: u64 = self.found.iter().sum();
        let above_100_us = self.found.iter().filter(|gap| ns(**gap) > 100_000);
        Gaps {
            cpu: self.cpu,
            lost_pct: 100.0 * as_f64(lost) / as_f64(total.max(1)),
            longest_ns: ns(self.found.iter().copied().max().unwrap_or(0)),
            above_2_us: self.found.len() as u64,
            above_100_us: above_100_us.count() as u64,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ticks of a short window: below 2^53"
)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and a short window fits in 64 bits"
)]
fn as_ticks(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_go_back() {
        let (ns, count) = (monotonic_ns(), ticks());
        assert!(monotonic_ns() >= ns);
        assert!(ticks() >= count);
        assert!(thread_cpu_ns() > 0);
        assert!(ticks_per_ns() > 0.0);
    }

    #[test]
    fn gaps_are_sorted_by_length() {
        let mut counter = Counter::new(2.0, 3);
        for step in [10, 4_000, 4_001, 200_002] {
            counter.step(step);
        }
        let gaps = counter.finish(1_000_000);
        assert_eq!(gaps.cpu, 3);
        assert_eq!((gaps.above_2_us, gaps.above_100_us), (2, 1));
        assert_eq!(gaps.longest_ns, 100_001);
        assert!((gaps.lost_pct - 20.4003).abs() < 1e-9, "{}", gaps.lost_pct);
    }

    #[test]
    fn a_detector_answers_for_each_cpu() {
        let cpus = sched::allowed_cpus().unwrap();
        let found = gaps(&cpus, Duration::from_millis(5)).unwrap();
        assert_eq!(found.len(), cpus.len());
        assert!(found.iter().all(|gaps| gaps.lost_pct <= 100.0));
        assert!(gaps(&[1_000_000], Duration::from_millis(1)).is_err());
    }
}
