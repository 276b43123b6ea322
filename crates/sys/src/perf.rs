//! Sampling by the CPU clock, for BPF programs that take stacks.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first published layout of `struct perf_event_attr`, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// A frequency in Hz, by `FREQUENCY` below.
    sample: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

const TYPE_SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
/// Bit of `freq` in the flags.
const FREQUENCY: u64 = 1 << 10;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// An event that fires `hertz` times a second on one CPU whatever runs there, for a BPF program to
/// be attached to. Needs `CAP_PERFMON`.
///
/// # Errors
/// `EACCES` without the capability, `ENODEV` when the CPU is offline.
pub fn cpu_clock(cpu: usize, hertz: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: 64,
        config: CPU_CLOCK,
        sample: u64::from(hertz),
        flags: FREQUENCY,
        ..Attributes::default()
    };
    const { assert!(size_of::<Attributes>() == 64) };
    let any_process: libc::pid_t = -1;
    let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
    let no_group: libc::c_int = -1;
    // SAFETY: the attributes are as long as they say and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            any_process,
            cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the call above opened the descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::time::{Duration, Instant};

    use super::*;

    /// The event counts nanoseconds of CPU time: it must move while this thread runs.
    #[test]
    fn the_event_counts() {
        if !crate::require::root() {
            return;
        }
        std::thread::spawn(|| {
            crate::sched::pin(0).unwrap();
            let mut event = File::from(cpu_clock(0, 99).unwrap());
            let deadline = Instant::now() + Duration::from_secs(5);
            let mut count = [0; 8];
            while u64::from_ne_bytes(count) == 0 {
                assert!(Instant::now() < deadline, "the event never counted");
                event.read_exact(&mut count).unwrap();
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(cpu_clock(100_000, 99).is_err());
    }
}
