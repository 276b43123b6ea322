//! Makes a folder of a log: the tree as of an epoch. Every file is made through the directory it is in,
//! which nobody else can enter before all is there, so no name and no symlink leads out of the folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::{fs, io::Errno};

use crate::contents::{Bytes, Contents, Source};
use crate::log::{self, Reader};
use crate::record::{Attributes, Entry, File, Kind, Name};
use crate::tree::{Node, Tree};

/// Bits of a mode that let whoever executes the file be somebody else.
const SET_ID: u16 = 0o6000;
/// Extended attributes that anybody may set on a file of his own.
const HARMLESS: &[u8] = b"user.";

/// What a restored tree may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Device nodes, set-user-ID and set-group-ID bits, and extended attributes other than `user.`:
    /// only from a log that you trust as you trust its source.
    pub privileged: bool,
}

/// What was made, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub epoch: u64,
    /// Names below the root.
    pub names: u64,
    /// Bytes written to files.
    pub bytes: u64,
    /// Files with another owner than in the source: only root can give files away.
    pub owners_left: u64,
    /// Device nodes left out.
    pub devices_left: u64,
    /// Files without the set-user-ID or set-group-ID bits that they have in the source.
    pub set_id_left: u64,
    /// Extended attributes left out.
    pub extended_left: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("{} is there already and not an empty directory: name another", .0.display())]
    Occupied(PathBuf),
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

/// Makes `to` of the log in `folder`, as of this epoch, or of its last one.
///
/// # Errors
/// [`Error::Occupied`], what is wrong with the log, or what the file system refuses. What was made until
/// then stays, and nobody but its owner can enter it.
pub fn restore(
    folder: &Path,
    epoch: Option<u64>,
    to: &Path,
    options: Options,
) -> Result<Restored, Error> {
    let epoch = match epoch {
        Some(epoch) => epoch,
        None => last_epoch(folder)?,
    };
    let state = State::read(folder, epoch)?;
    let mut maker = Maker {
        state: &state,
        options,
        top: empty_directory(to)?,
        path: to.to_owned(),
        first: BTreeMap::new(),
        owned: rustix::process::geteuid().is_root(),
        restored: Restored {
            epoch,
            ..Restored::default()
        },
    };
    if let Some(root) = state.tree.root() {
        maker.directory(root)?;
    }
    fs::syncfs(&maker.top).map_err(|errno| maker.failed(errno))?;
    Ok(maker.restored)
}

pub(crate) fn last_epoch(folder: &Path) -> Result<u64, log::Error> {
    let mut reader = Reader::open(folder)?;
    let mut last = 0;
    while let Some(located) = reader.read()? {
        if let Entry::Epoch { number } = located.record.entry {
            last = number;
        }
    }
    Ok(last)
}

fn empty_directory(to: &Path) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::Io {
        path: to.to_owned(),
        cause: errno.into(),
    };
    match fs::mkdir(to, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let empty = std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_none());
            if !empty {
                return Err(Error::Occupied(to.to_owned()));
            }
            fs::chmod(to, Mode::RWXU).map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno)),
    }
    open_directory(CWD, to.as_os_str()).map_err(failed)
}

fn open_directory(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    fs::openat(at, name, flags, Mode::empty())
}

/// What the log says of an epoch.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) contents: Contents,
}

impl State {
    pub(crate) fn read(folder: &Path, epoch: u64) -> Result<Self, log::Error> {
        let mut reader = Reader::open(folder)?;
        let (mut tree, mut contents) = (Tree::default(), Contents::default());
        while let Some(located) = reader.read()? {
            tree.fold(&located.record)
                .map_err(|invalid| log::Error::Invalid {
                    folder: folder.to_owned(),
                    invalid,
                })?;
            contents.follow(&located);
            if located.record.entry == (Entry::Epoch { number: epoch }) {
                return Ok(Self { tree, contents });
            }
        }
        Err(log::Error::NoEpoch {
            folder: folder.to_owned(),
            epoch,
        })
    }
}

/// Makes a tree.
#[derive(Debug)]
struct Maker<'a> {
    state: &'a State,
    options: Options,
    top: OwnedFd,
    /// What is being made, for errors.
    path: PathBuf,
    /// Where a file of several names has its first.
    first: BTreeMap<File, (File, Name)>,
    owned: bool,
    restored: Restored,
}

/// A directory whose entries are being made.
#[derive(Debug)]
struct Level {
    file: File,
    fd: OwnedFd,
    left: Vec<(Name, File)>,
}

impl Maker<'_> {
    /// All below the root; deepest first get their attributes, for making an entry changes its
    /// directory's.
    fn directory(&mut self, root: File) -> Result<(), Error> {
        let top = self.top.try_clone().map_err(|error| self.io(error))?;
        let mut levels = vec![self.level(root, top)];
        while let Some(level) = levels.last_mut() {
            let Some((name, file)) = level.left.pop() else {
                self.attributes(level.file, level.fd.as_fd())?;
                levels.pop();
                self.path.pop();
                continue;
            };
            let directory = level.file;
            self.path.push(OsStr::from_bytes(name.as_bytes()));
            match self.entry((directory, level.fd.as_fd()), &name, file)? {
                Some(fd) => {
                    let level = self.level(file, fd);
                    levels.push(level);
                }
                None => {
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    fn level(&self, file: File, fd: OwnedFd) -> Level {
        let children = self.state.tree.children(file);
        let left = children.map(|(name, file)| (name.clone(), file)).collect();
        Level { file, fd, left }
    }

    /// A directory's descriptor is returned: what is in it comes next.
    fn entry(
        &mut self,
        (directory, at): (File, BorrowedFd<'_>),
        name: &Name,
        file: File,
    ) -> Result<Option<OwnedFd>, Error> {
        let Some(node) = self.state.tree.get(file) else {
            return Ok(None);
        };
        let called = OsStr::from_bytes(name.as_bytes());
        if let Some((there, first)) = self.first.get(&file).cloned() {
            let from = self.reach(there)?;
            let first = OsStr::from_bytes(first.as_bytes());
            fs::linkat(&from, first, at, called, AtFlags::empty()).map_err(|e| self.failed(e))?;
            self.restored.names += 1;
            return Ok(None);
        }
        if !self.make(at, called, file, node)? {
            return Ok(None);
        }
        self.restored.names += 1;
        if node.kind == Kind::Directory {
            return open_directory(at, called)
                .map(Some)
                .map_err(|e| self.failed(e));
        }
        if node.names.len() > 1 {
            self.first.insert(file, (directory, name.clone()));
        }
        Ok(None)
    }

    /// Makes what is no directory whole; false for what is left out.
    fn make(
        &mut self,
        at: BorrowedFd<'_>,
        name: &OsStr,
        file: File,
        node: &Node,
    ) -> Result<bool, Error> {
        let (mode, none) = (Mode::RUSR | Mode::WUSR, 0);
        let node_of = |kind, device| fs::mknodat(at, name, kind, mode, device);
        let made = match &node.kind {
            Kind::Directory => return self.done(fs::mkdirat(at, name, Mode::RWXU)),
            Kind::Regular => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let fd = fs::openat(at, name, flags, mode).map_err(|e| self.failed(e))?;
                self.content(file, node, &std::fs::File::from(fd))?;
                Ok(())
            }
            Kind::Symlink(target) => fs::symlinkat(OsStr::from_bytes(target), at, name),
            Kind::Fifo => node_of(FileType::Fifo, none),
            Kind::Socket => node_of(FileType::Socket, none),
            Kind::CharacterDevice(_) | Kind::BlockDevice(_) if !self.options.privileged => {
                self.restored.devices_left += 1;
                return Ok(false);
            }
            Kind::CharacterDevice(device) => node_of(FileType::CharacterDevice, *device),
            Kind::BlockDevice(device) => node_of(FileType::BlockDevice, *device),
        };
        self.done(made)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(at, name, flags, Mode::empty()).map_err(|e| self.failed(e))?;
        self.attributes(file, fd.as_fd())?;
        Ok(true)
    }

    fn done(&self, made: Result<(), Errno>) -> Result<bool, Error> {
        made.map(|()| true).map_err(|errno| self.failed(errno))
    }

    /// The bytes that are on the disk; the rest stays a hole.
    fn content(&mut self, file: File, node: &Node, to: &std::fs::File) -> Result<(), Error> {
        let mut source = Source::default();
        let extents = self.state.contents.get(file);
        for (start, end, bytes) in extents.into_iter().flat_map(|extents| extents.iter()) {
            let end = end.min(node.size);
            if start >= end {
                continue;
            }
            match bytes {
                Bytes::Hole => {}
                Bytes::Written { place, at } => {
                    let bytes = source.read(place, *at, start, end)?;
                    to.write_all_at(bytes, start).map_err(|e| self.io(e))?;
                    self.restored.bytes += end - start;
                }
                Bytes::Zeros => {
                    let flags = fs::FallocateFlags::empty();
                    // Where there is no such thing, reading says zeros all the same.
                    let _zeros = fs::fallocate(to, flags, start, end - start);
                }
            }
        }
        to.set_len(node.size).map_err(|e| self.io(e))
    }

    /// Owner, mode, extended attributes and time, in the order in which none undoes another.
    fn attributes(&mut self, file: File, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(node) = self.state.tree.get(file) else {
            return Ok(());
        };
        // The only way to what is open as a path; to a symlink itself there is none.
        let by_path = PathBuf::from(format!("/proc/self/fd/{}", raw(fd)));
        let symlink = matches!(node.kind, Kind::Symlink(_));
        if let Some(attributes) = &node.attributes {
            self.owner(attributes, fd)?;
            if !symlink {
                let mut mode = attributes.mode;
                if mode & SET_ID != 0 && !self.options.privileged && node.kind != Kind::Directory {
                    mode &= !SET_ID;
                    self.restored.set_id_left += 1;
                }
                fs::chmod(&by_path, Mode::from_raw_mode(u32::from(mode)))
                    .map_err(|e| self.failed(e))?;
            }
        }
        for (name, value) in &node.extended {
            let allowed = self.options.privileged || name.starts_with(HARMLESS);
            let set = || fs::setxattr(&by_path, name.as_slice(), value, XattrFlags::empty());
            if !allowed || symlink || set().is_err() {
                self.restored.extended_left += 1;
            }
        }
        if let Some(attributes) = &node.attributes {
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_OMIT,
                },
                last_modification: Timespec {
                    tv_sec: attributes.modified_ns.div_euclid(1_000_000_000),
                    tv_nsec: attributes.modified_ns.rem_euclid(1_000_000_000),
                },
            };
            fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH).map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    fn owner(&mut self, attributes: &Attributes, fd: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.owned {
            self.restored.owners_left += 1;
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        fs::chownat(fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).map_err(|e| self.failed(e))
    }

    /// Opens a directory that was made, from the top.
    fn reach(&self, directory: File) -> Result<OwnedFd, Error> {
        let mut at = self.top.try_clone().map_err(|error| self.io(error))?;
        for name in self.state.tree.path(directory).unwrap_or_default() {
            let name = OsStr::from_bytes(name.as_bytes());
            at = open_directory(at.as_fd(), name).map_err(|e| self.failed(e))?;
        }
        Ok(at)
    }

    fn failed(&self, errno: Errno) -> Error {
        self.io(errno.into())
    }

    fn io(&self, cause: io::Error) -> Error {
        Error::Io {
            path: self.path.clone(),
            cause,
        }
    }
}

fn raw(fd: BorrowedFd<'_>) -> i32 {
    use std::os::fd::AsRawFd as _;
    fd.as_raw_fd()
}
