//! Watches the tree's path: whether the tree is still there, and what is mounted within it.

use std::collections::BTreeSet;
use std::fs::{self, File as Opened};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;

use super::{Error, mounts};

/// How often the root is checked.
const INTERVAL: Duration = Duration::from_secs(1);

/// The path of the tree, and the mounts within it.
#[derive(Debug)]
pub(super) struct MountWatch {
    path: PathBuf,
    /// When the root was last checked.
    checked: Instant,
    /// The kernel's list of mounts, which can be polled for changes.
    list: Opened,
    /// The mount points within the tree.
    mounted: BTreeSet<PathBuf>,
}

impl MountWatch {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let list = Opened::open("/proc/thread-self/mountinfo")?;
        Ok(Self {
            path: path.to_owned(),
            checked: Instant::now(),
            list,
            mounted: mounts::below(path)?.into_iter().collect(),
        })
    }

    /// A hash of the mount points.
    pub(super) fn hash(&self) -> String {
        let mut hash = blake3::Hasher::new();
        for at in &self.mounted {
            hash.update(at.as_os_str().as_bytes()).update(b"\0");
        }
        hash.finalize().to_hex().to_string()
    }

    /// Mount points within the tree that were added or removed since the last call, by their paths
    /// below it. `None` if no mount has changed anywhere.
    ///
    /// # Errors
    /// [`Error::Moved`] if the tree is no longer at its path.
    pub(super) fn changes(&mut self, root: &OwnedFd) -> Result<Option<Vec<PathBuf>>, Error> {
        let failed = || Error::io("what is mounted");
        if !self.is_another_list().map_err(failed())? {
            return Ok(None);
        }
        self.check_root(root)?;
        self.differences().map(Some).map_err(failed())
    }

    /// Checks the root if the last check is long ago.
    ///
    /// # Errors
    /// [`Error::Moved`] if the tree is no longer at its path.
    pub(super) fn check_root_if_due(&mut self, root: &OwnedFd) -> Result<(), Error> {
        if self.checked.elapsed() >= INTERVAL {
            self.checked = Instant::now();
            self.check_root(root)?;
        }
        Ok(())
    }

    fn is_another_list(&self) -> io::Result<bool> {
        let mut list = [PollFd::new(self.list.as_fd(), PollFlags::POLLPRI)];
        Ok(poll(&mut list, PollTimeout::ZERO)? > 0)
    }

    fn differences(&mut self) -> io::Result<Vec<PathBuf>> {
        let now: BTreeSet<_> = mounts::below(&self.path)?.into_iter().collect();
        let before = std::mem::replace(&mut self.mounted, now);
        let root = self.path.canonicalize()?;
        let changed = before.symmetric_difference(&self.mounted);
        let below = changed.filter_map(|at| at.strip_prefix(&root).ok());
        Ok(below.map(Path::to_owned).collect())
    }

    fn check_root(&self, root: &OwnedFd) -> Result<(), Error> {
        let path = &self.path;
        let root = fstat(root).map_err(|errno| Error::Tree {
            path: path.clone(),
            cause: errno.into(),
        })?;
        let there = fs::metadata(path);
        let same = there.is_ok_and(|it| (it.dev(), it.ino()) == (root.st_dev, root.st_ino));
        match same {
            true => Ok(()),
            false => Err(Error::Moved(path.clone())),
        }
    }
}
