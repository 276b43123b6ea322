//! Waiting until no CPU still runs with what was just unpublished.

use std::io;

/// `membarrier(2)`'s MEMBARRIER_CMD_GLOBAL.
const GLOBAL: libc::c_int = 1;

/// Returns after an RCU grace period: every BPF program that could see a map value replaced before
/// the call has returned. Takes milliseconds.
///
/// # Errors
/// `ENOSYS` on kernels built without membarrier, `EINVAL` with `nohz_full` CPUs.
pub fn synchronize() -> io::Result<()> {
    // SAFETY: no pointer is passed.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_grace_period_passes() {
        super::synchronize().unwrap();
    }
}
