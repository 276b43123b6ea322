//! Where a tree lies: whether it is still there, and what is mounted within it.

use std::collections::BTreeSet;
use std::fs::{self, File as Opened};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;

use super::{Capture, Error, mounts};
use crate::record::{File, Name, Part};

/// How often it is looked for.
const OFTEN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    looked: Instant,
    /// The kernel's list: it says when it is another.
    list: Opened,
    /// What is mounted within the tree.
    mounted: BTreeSet<PathBuf>,
}

impl Place {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let list = Opened::open("/proc/thread-self/mountinfo")?;
        Ok(Self {
            path: path.to_owned(),
            looked: Instant::now(),
            list,
            mounted: mounts::below(path)?.into_iter().collect(),
        })
    }

    /// Whether something was mounted or unmounted, here or elsewhere.
    fn is_another(&self) -> io::Result<bool> {
        let mut list = [PollFd::new(self.list.as_fd(), PollFlags::POLLPRI)];
        Ok(poll(&mut list, PollTimeout::ZERO)? > 0)
    }

    /// Which places it is that something is mounted on, in one number.
    pub(super) fn mounts(&self) -> String {
        let mut hash = blake3::Hasher::new();
        for at in &self.mounted {
            hash.update(at.as_os_str().as_bytes()).update(b"\0");
        }
        hash.finalize().to_hex().to_string()
    }

    /// What is mounted within the tree now and was not, or the other way round: by their paths below it.
    fn changed(&mut self) -> io::Result<Vec<PathBuf>> {
        let now: BTreeSet<_> = mounts::below(&self.path)?.into_iter().collect();
        let before = std::mem::replace(&mut self.mounted, now);
        let root = self.path.canonicalize()?;
        let changed = before.symmetric_difference(&self.mounted);
        let below = changed.filter_map(|at| at.strip_prefix(&root).ok());
        Ok(below.map(Path::to_owned).collect())
    }
}

impl Capture {
    /// Reads again what a mount hides or shows, of which no file system tells.
    ///
    /// # Errors
    /// [`Error::Moved`] where the tree is not at its path any more.
    pub(super) fn look_around(&mut self) -> Result<(), Error> {
        let failed = || Error::io("what is mounted");
        if self.place.is_another().map_err(failed())? {
            self.is_there()?;
            let changed = self.place.changed().map_err(failed())?;
            // What came and went since says nothing, but for what it has hidden.
            let mut above: BTreeSet<File> = self.deriver.source.hidden().collect();
            let places = changed.iter().filter_map(|at| at.parent());
            above.extend(places.filter_map(|above| self.at(above)));
            for directory in above {
                if self.deriver.tree.get(directory).is_some() {
                    self.deriver.doubt(directory, Part::Names);
                }
            }
            if let Some(pinned) = self.pinned.as_mut().filter(|_| !changed.is_empty()) {
                pinned.distrust()?;
            }
        }
        if self.place.looked.elapsed() >= OFTEN {
            self.place.looked = Instant::now();
            self.is_there()?;
        }
        Ok(())
    }

    fn is_there(&self) -> Result<(), Error> {
        let path = &self.place.path;
        let root = fstat(self.deriver.source.root()).map_err(|errno| Error::Tree {
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

    /// What the log has at a path below the root.
    fn at(&self, path: &Path) -> Option<File> {
        let tree = &self.deriver.tree;
        path.iter().try_fold(tree.root()?, |directory, name| {
            tree.child(directory, &Name::new(name.as_bytes()).ok()?)
        })
    }
}
