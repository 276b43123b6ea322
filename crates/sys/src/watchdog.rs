//! A child process that does one thing where its parent cannot any more, killed or stopped: it writes to
//! a file that is open.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2, write};

const ARMED: u8 = 1;
const DISARMED: u8 = 0;

/// The parent's end. Dropping it is as good as dying.
#[derive(Debug)]
pub struct Watchdog {
    /// The pipe has no other owner: it is closed when this process ends.
    pipe: Option<OwnedFd>,
    child: Pid,
}

impl Watchdog {
    /// `text` will be written to `file` if, while it is armed, this process ends, or says nothing for
    /// `limit` (whole milliseconds). Once written it is armed no more.
    ///
    /// # Errors
    /// No more processes or descriptors.
    pub fn start(file: impl AsFd, text: &'static [u8], limit: Duration) -> io::Result<Self> {
        let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
        let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        let (pipe, file) = (theirs.as_raw_fd(), file.as_fd().as_raw_fd());
        // SAFETY: the child never returns from `watch`, which makes system calls and nothing else.
        match unsafe { fork() }? {
            ForkResult::Child => watch(pipe, file, text, limit),
            ForkResult::Parent { child } => Ok(Self {
                pipe: Some(ours),
                child,
            }),
        }
    }

    /// # Errors
    /// Somebody has killed the child.
    pub fn arm(&self) -> io::Result<()> {
        self.send(ARMED)
    }

    /// # Errors
    /// As [`Self::arm`].
    pub fn disarm(&self) -> io::Result<()> {
        self.send(DISARMED)
    }

    fn send(&self, what: u8) -> io::Result<()> {
        let pipe = self.pipe.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        write(pipe, &[what])?;
        Ok(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe = None;
        // It may have been killed, and be waited for already.
        let _ = waitpid(self.child, None);
    }
}

/// The child. It is a copy of a process with many threads, of which it has one: whatever lock another
/// held then is held for ever, so nothing is allocated here, and nothing can panic.
fn watch(pipe: RawFd, file: RawFd, text: &[u8], limit: libc::c_int) -> ! {
    // A signal to the parent's whole process group must not end this process.
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the set is filled before it is read, and the calls touch no other memory.
    unsafe {
        libc::sigfillset(signals.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, signals.as_ptr(), ptr::null_mut());
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"lowroad-watch".as_ptr());
    }
    // The parent's end of this pipe and of others', above all.
    let (low, high) = (pipe.min(file), pipe.max(file));
    close(0, low - 1);
    close(low + 1, high - 1);
    close(high + 1, RawFd::MAX);
    let mut armed = false;
    loop {
        let mut asked = libc::pollfd {
            fd: pipe,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor is asked for, and it outlives the call.
        let ready = unsafe { libc::poll(&raw mut asked, 1, if armed { limit } else { -1 }) };
        let mut said = DISARMED;
        let read = match ready {
            // SAFETY: one byte is read to where one is.
            1.. => unsafe { libc::read(pipe, (&raw mut said).cast(), 1) },
            _ => 0,
        };
        let ended = ready > 0 && read == 0;
        if armed && (ready == 0 || ended) {
            // SAFETY: as many bytes are written as there are.
            unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
            armed = false;
        }
        if ended {
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(0) };
        }
        if read == 1 {
            armed = said == ARMED;
        }
    }
}

/// Closes descriptors from one to another; none where that is below.
fn close(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: the child uses none of them.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// A child of another test has this one's pipes until it has closed them.
    fn test_lock() -> MutexGuard<'static, ()> {
        static TEST_LOCK: Mutex<()> = Mutex::new(());
        TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading() -> (File, OwnedFd) {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
        (File::from(reader), writer)
    }

    fn all(mut from: File) -> String {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn end_of_parent_triggers_only_while_armed() {
        let _alone = test_lock();
        for (arm, told) in [(true, "0"), (false, "")] {
            let (reader, writer) = reading();
            let watchdog = Watchdog::start(&writer, b"0", Duration::from_secs(600)).unwrap();
            // It has its own.
            drop(writer);
            watchdog.arm().unwrap();
            if !arm {
                watchdog.disarm().unwrap();
            }
            drop(watchdog);
            assert_eq!(all(reader), told);
        }
    }

    #[test]
    fn silent_parent_triggers_watchdog() {
        let _alone = test_lock();
        let (mut reader, writer) = reading();
        let watchdog = Watchdog::start(&writer, b"0", Duration::from_millis(1)).unwrap();
        watchdog.arm().unwrap();
        let mut told = [0];
        reader.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"0");
        drop(watchdog);
        drop(writer);
        assert_eq!(all(reader), "", "once is enough");
    }

    #[test]
    fn killed_watchdog_cannot_be_armed() {
        let _alone = test_lock();
        let (reader, writer) = reading();
        let watchdog = Watchdog::start(&writer, b"0", Duration::from_secs(600)).unwrap();
        drop(writer);
        nix::sys::signal::kill(watchdog.child, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert_eq!(all(reader), "", "it has closed the file by its end");
        assert!(watchdog.arm().is_err());
    }
}
