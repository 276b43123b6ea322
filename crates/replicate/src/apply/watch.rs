//! Tells when a log has grown, without asking all the time.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Becomes readable when something is written to a log's folder.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// # Errors
    /// If the folder cannot be watched.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, folder, what)?;
        Ok(Self(watch))
    }

    /// Forgets what was written until now: to be asked before the log is read.
    ///
    /// # Errors
    /// If the kernel says that it cannot tell any more.
    pub fn clear(&self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.0, &mut buffer);
        loop {
            match events.next() {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
