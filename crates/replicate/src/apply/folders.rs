//! Opens files of a replica, one path component after the other from its top. It never follows a
//! symbolic link, a mount or a `..`, because others may have put anything there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::{fs, io::Errno};

use super::plan::Directory;
use crate::folder::open_beneath;
use crate::make::{Gate, OWNER_RWX, by_path};
use crate::record::{File, Name, Renumbering};

/// The most directories that are kept open.
const OPEN: usize = 128;

/// The two places of a replica, and the place of each directory.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) tree: Arc<OwnedFd>,
    pub(super) staging: Arc<OwnedFd>,
    /// Directories that are outside of the tree, or were put into it.
    moved: BTreeMap<File, Place>,
    open: BTreeMap<File, Arc<OwnedFd>>,
    /// Directories whose permissions were extended. Without root, a directory can be changed only
    /// while its owner has the permission.
    pub(super) relaxed: BTreeSet<Directory>,
    owned: bool,
    gate: Gate,
}

#[derive(Clone, Debug)]
enum Place {
    Staged,
    In(Directory, Name),
}

/// The name of a file while it is outside of the tree.
pub(super) fn staged(file: File, directory: bool) -> OsString {
    let kind = if directory { "d" } else { "f" };
    format!("{kind}{:x}.{:x}", file.inode, file.generation).into()
}

pub(super) fn called(name: &Name) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

/// Whether both names exist and are of the same file.
pub(super) fn is_one(at: impl AsFd, one: &str, other: &str) -> Result<bool, Errno> {
    let at = at.as_fd();
    let there = |name: &str| match fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        status => status.map(|status| Some((status.st_dev, status.st_ino))),
    };
    let one = there(one)?;
    Ok(one.is_some() && one == there(other)?)
}

pub(super) fn open(
    at: impl AsFd,
    name: impl AsRef<OsStr>,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    open_beneath(at, name, flags, Mode::empty())
}

/// Opens a path below a directory, one component after the other. An empty path opens the directory
/// itself.
pub(super) fn open_path(top: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let above = path.parent().unwrap_or_else(|| Path::new(""));
    let through = OFlags::PATH | OFlags::DIRECTORY;
    let mut at = fs::openat(top, ".", through | OFlags::CLOEXEC, Mode::empty())?;
    for name in above {
        at = open(&at, name, through)?;
    }
    match path.file_name() {
        Some(name) => open(&at, name, flags),
        None => fs::openat(&at, ".", flags | OFlags::CLOEXEC, Mode::empty()),
    }
}

impl Folders {
    pub(super) fn new(tree: OwnedFd, staging: OwnedFd, gate: Gate) -> Self {
        Self {
            tree: Arc::new(tree),
            staging: Arc::new(staging),
            moved: BTreeMap::new(),
            open: BTreeMap::new(),
            relaxed: BTreeSet::new(),
            owned: rustix::process::geteuid().is_root(),
            gate,
        }
    }

    /// The directory in its current place. `before` has its place before the step.
    pub(super) fn directory(
        &mut self,
        directory: Directory,
        before: &dyn Fn(File) -> Option<(Directory, Name)>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let mut down = Vec::new();
        let mut at = directory;
        let mut reached = loop {
            let Some(file) = at else {
                break self.permitted(None, Arc::clone(&self.tree))?;
            };
            if let Some(open) = self.open.get(&file) {
                break Arc::clone(open);
            }
            let place = match self.moved.get(&file) {
                Some(place) => place.clone(),
                None => before(file)
                    .map(|(above, name)| Place::In(above, name))
                    .ok_or(Errno::NOENT)?,
            };
            match place {
                Place::Staged => {
                    let flags = OFlags::PATH | OFlags::DIRECTORY;
                    let fd = open(&self.staging, staged(file, true), flags)?;
                    break self.keep(file, fd)?;
                }
                Place::In(above, name) => {
                    down.push((file, name));
                    at = above;
                }
            }
        };
        while let Some((file, name)) = down.pop() {
            let fd = open(&reached, called(&name), OFlags::PATH | OFlags::DIRECTORY)?;
            reached = self.keep(file, fd)?;
        }
        Ok(reached)
    }

    pub(super) fn is_staged(&mut self, file: File) {
        self.moved.insert(file, Place::Staged);
    }

    pub(super) fn is_placed(&mut self, file: File, directory: Directory, name: Name) {
        self.moved.insert(file, Place::In(directory, name));
    }

    /// Applies a renumbering of files. No step is under way.
    pub(super) fn renumber(&mut self, all: &Renumbering) {
        self.open.clear();
        let relaxed = std::mem::take(&mut self.relaxed).into_iter();
        let name = |file: File| all.get(file).unwrap_or(file);
        self.relaxed = relaxed.map(|directory| directory.map(name)).collect();
    }

    /// Ends a step.
    pub(super) fn settle(&mut self) {
        self.moved.clear();
        self.open.clear();
        self.relaxed.clear();
    }

    fn keep(&mut self, file: File, fd: OwnedFd) -> Result<Arc<OwnedFd>, Errno> {
        let fd = self.permitted(Some(file), Arc::new(fd))?;
        if self.open.len() >= OPEN {
            self.open.clear();
        }
        self.open.insert(file, Arc::clone(&fd));
        Ok(fd)
    }

    /// Makes a directory accessible and writable for its owner.
    fn permitted(&mut self, directory: Directory, fd: Arc<OwnedFd>) -> Result<Arc<OwnedFd>, Errno> {
        if !self.owned && self.permit(fd.as_fd(), OWNER_RWX)? {
            self.relaxed.insert(directory);
        }
        Ok(fd)
    }

    /// Returns whether the owner's permissions had to be changed.
    pub(super) fn permit(&self, fd: BorrowedFd<'_>, bits: u32) -> Result<bool, Errno> {
        let mode = fs::fstat(fd)?.st_mode & 0o7777;
        if mode & bits == bits {
            return Ok(false);
        }
        self.gate.pass()?;
        fs::chmod(by_path(fd), Mode::from_raw_mode(mode | bits))?;
        Ok(true)
    }
}
