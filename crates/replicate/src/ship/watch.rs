//! Waits with inotify until something is written to a log's folder, without polling the disk.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Its descriptor is readable while there is a change that [`Watch::wait`] has not returned yet.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// # Errors
    /// There is no such folder, or the limit of inotify instances (`fs.inotify.max_user_instances`)
    /// is reached.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, folder, what | WatchFlags::ONLYDIR)?;
        Ok(Self(watch))
    }

    /// Returns when something was written, or after this time (whole milliseconds). Read the log
    /// afterwards. A write during that read makes the next call return at once.
    ///
    /// # Errors
    /// Those of `poll` and `read`.
    pub fn wait(&self, at_most: Duration) -> io::Result<()> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut asked, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => self.drain(),
            Err(error) => Err(error.into()),
        }
    }

    /// Discards the pending changes, for callers that poll the descriptor together with others.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn drain(&self) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut room);
        loop {
            match events.next() {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
