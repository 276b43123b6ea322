//! A child process that does not outlive the thread that started it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Puts the child at the head of a process group of its own and has the kernel kill it when the
/// *thread* that spawns it ends: spawn from one that lives as long as the child should.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    command.process_group(0);
    let parent = nix::unistd::getpid();
    // SAFETY: prctl and getppid are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the signal was asked for.
            if libc::getppid() != parent.as_raw() {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    }
}
