//! Waits until something was written to a log's folder, by inotify: nobody asks the disk in between.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Its descriptor is readable while there is something that [`Watch::wait`] has not told of.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// # Errors
    /// No such folder, or no more watches: the limit is `fs.inotify.max_user_instances`.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, folder, what | WatchFlags::ONLYDIR)?;
        Ok(Self(watch))
    }

    /// Returns when something was written, or after this long (whole milliseconds): read the log then.
    /// What is written while it is read is told of by the next call.
    ///
    /// # Errors
    /// Of poll and read.
    pub fn wait(&self, at_most: Duration) -> io::Result<()> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut asked, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => self.drain(),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets what has been told: by who waits for the descriptor among others.
    ///
    /// # Errors
    /// Of read.
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
