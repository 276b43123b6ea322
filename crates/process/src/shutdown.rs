//! SIGINT and SIGTERM as something to ask and to poll, so that a program can drain and end, and
//! SIGHUP, so that it can read its files anew.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The request to end. Its descriptor becomes readable with the first signal and stays so.
#[derive(Debug)]
pub struct Shutdown {
    signals: SignalFd,
}

impl Shutdown {
    /// Takes both signals over. Call it before the first thread starts: only threads started
    /// afterwards leave the signals to it.
    pub fn install() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            signals: SignalFd::with_flags(&signals, flags)?,
        })
    }

    /// Whether a signal has arrived. One system call: ask once a burst, not once a packet.
    pub fn requested(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for a signal at most this long (whole milliseconds); whether one has arrived.
    pub fn wait(&self, at_most: Duration) -> bool {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        // The signal is left unread, so that every later question has the same answer.
        let mut asked = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut asked, timeout), Ok(ready) if ready > 0)
    }
}

/// SIGHUP as something to ask for: the request to read files anew.
#[derive(Debug)]
pub struct Reload {
    signals: SignalFd,
}

impl Reload {
    /// Takes the signal over, as [`Shutdown::install`]. It blocks SIGUSR1 and SIGUSR2 as well, which tools that rotate
    /// logs send to services: they would end the process.
    pub fn install() -> io::Result<Self> {
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGUSR1);
        blocked.add(Signal::SIGUSR2);
        blocked.thread_block()?;
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGHUP);
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            signals: SignalFd::with_flags(&signals, flags)?,
        })
    }

    /// Whether the signal has arrived since the last question.
    pub fn requested(&self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }
}

impl AsFd for Shutdown {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_is_seen_once() {
        let reload = Reload::install().unwrap();
        assert!(!reload.requested());
        nix::sys::signal::raise(Signal::SIGHUP).unwrap();
        assert!(reload.requested());
        assert!(!reload.requested());
    }

    #[test]
    fn a_signal_is_seen_and_stays_seen() {
        let shutdown = Shutdown::install().unwrap();
        assert!(!shutdown.requested());
        // raise() reaches this thread alone: the test runner's others have not blocked the signal.
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        assert!(shutdown.wait(Duration::from_secs(10)));
        assert!(shutdown.requested());
    }
}
