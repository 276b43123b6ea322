//! Sets where and when the calling thread runs.

use std::io;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread to one CPU.
///
/// # Errors
/// The CPU does not exist, or this process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Does some work on one CPU; the thread may run afterwards where it might before.
///
/// # Errors
/// The CPU does not exist, or this process may not use it.
pub fn on_cpu<T>(cpu: usize, work: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(Pid::from_raw(0))?;
    pin(cpu)?;
    let done = work();
    sched_setaffinity(Pid::from_raw(0), &before)?;
    Ok(done)
}

/// The CPUs the calling thread may run on.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count())
        .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
        .collect())
}

/// SCHED_FIFO for the calling thread. Needs `CAP_SYS_NICE`. A FIFO thread that never sleeps is
/// stopped about 50 ms each second by the kernel's real-time throttling.
pub fn fifo(priority: u8) -> io::Result<()> {
    set_policy(libc::SCHED_FIFO, i32::from(priority))
}

/// SCHED_IDLE for the calling thread: it runs only where nothing else wants to.
pub fn idle() -> io::Result<()> {
    set_policy(libc::SCHED_IDLE, 0)
}

/// SCHED_BATCH for the calling thread: it keeps its share, and preempts no other when it wakes.
pub fn batch() -> io::Result<()> {
    set_policy(libc::SCHED_BATCH, 0)
}

/// The ordinary policy again.
pub fn ordinary() -> io::Result<()> {
    set_policy(libc::SCHED_OTHER, 0)
}

/// The niceness of a task, by its thread id: -20 (first) to 19 (last). Below 0 needs `CAP_SYS_NICE`.
pub fn nice(task: u32, niceness: i32) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, task, niceness) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Keeps another task, by its thread id, to one CPU.
///
/// # Errors
/// The task or CPU does not exist, or the task may not be moved.
pub fn pin_task(task: u32, cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(task.cast_signed()), &set)?)
}

fn set_policy(policy: libc::c_int, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns when no CPU is any more where it was in the kernel with preemption or interrupts off: some 10 ms.
pub fn grace_period() -> io::Result<()> {
    // SAFETY: no pointer is passed.
    let passed = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if passed < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sleeps until CLOCK_MONOTONIC reads `deadline_ns`; returns at once when it has passed.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = Duration::from_nanos(deadline_ns);
    let until = libc::timespec {
        tv_sec: libc::time_t::try_from(deadline.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(deadline.subsec_nanos().cast_signed()),
    };
    // An interrupting signal resumes the sleep: the deadline is absolute.
    // SAFETY: `until` outlives the call, and an absolute sleep writes no remainder.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

/// Asks for wake-ups as exact as the timer allows instead of up to 50 us late, for the calling
/// thread when it is not real-time.
pub fn exact_timers() -> io::Result<()> {
    Ok(nix::sys::prctl::set_timerslack(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_pinned_thread_is_allowed_one_cpu() {
        std::thread::spawn(|| {
            let cpu = *allowed_cpus().unwrap().last().unwrap();
            pin(cpu).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(pin(1_000_000).is_err());
    }

    #[test]
    fn sleeping_ends_at_or_after_the_deadline() {
        let deadline = clock::monotonic_ns() + 2_000_000;
        sleep_until(deadline);
        assert!(clock::monotonic_ns() >= deadline);
        sleep_until(0);
    }
}
