//! Restores the tree of an epoch from a log into a folder. Every file is created through the
//! descriptor of its directory, which no other user can enter before the tree is complete, so that
//! no name and no symbolic link leads out of the folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use datapath::{Classify, ErrorClass};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::{fs, io::Errno};

use crate::contents::Contents;
use crate::folder::{Folder, open_beneath};
use crate::log::{self, LocatedRecord, Reader};
use crate::make::{Bytes, Fault, Gate, Maker, refuses_name};
use crate::record::{Entry, File, Kind, Name};
use crate::tree::Tree;

/// How many omitted names are named in warnings.
const MAX_WARNINGS: usize = 20;

/// What a restored tree may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Device nodes, set-user-ID and set-group-ID bits, and extended attributes other than `user.`.
    /// Allow them only if you trust the log as you trust its source.
    pub privileged: bool,
}

/// What was created and what was omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    pub epoch: u64,
    /// When the capture wrote that, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Names below the root.
    pub names: u64,
    /// Bytes written to files.
    pub bytes: u64,
    /// Files with another owner than in the source, because only root can give files away.
    pub owners_left: u64,
    /// Device nodes omitted.
    pub devices_left: u64,
    /// Files without the set-user-ID or set-group-ID bits that they have in the source.
    pub set_id_left: u64,
    /// Extended attributes omitted.
    pub extended_left: u64,
    /// Names omitted because the file system cannot hold them.
    pub names_left: u64,
    /// Times outside of the range of the file system.
    pub times_left: u64,
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

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Log(error) if error.is_of_folder() => ErrorClass::Input,
            Self::Log(log::Error::NoEpoch { .. } | log::Error::Damaged { .. })
            | Self::Occupied(_) => ErrorClass::Input,
            Self::Log(_) | Self::Io { .. } => ErrorClass::Failed,
        }
    }
}

/// Restores `to` from the log in `folder`, at this epoch or at its last one.
///
/// # Errors
/// [`Error::Occupied`], errors of reading the log, or errors of the file system. What was created
/// until then stays, and only its owner can enter it.
pub fn restore(
    folder: &Path,
    epoch: Option<u64>,
    to: &Path,
    options: Options,
) -> Result<RestoreReport, Error> {
    let epoch = match epoch {
        Some(epoch) => epoch,
        None => last_epoch(folder)?,
    };
    let State {
        tree,
        contents,
        at_ns,
    } = State::read(folder, epoch)?;
    let top = empty_directory(to)?;
    let mut maker = Maker::new(options.privileged, Gate::default());
    let filled = fill(&tree, &contents, (&top, to), &mut maker)?;
    fs::syncfs(&top).map_err(|errno| Error::Io {
        path: to.to_owned(),
        cause: errno.into(),
    })?;
    Ok(RestoreReport {
        epoch,
        at_ns,
        names: filled.names,
        bytes: maker.bytes,
        owners_left: maker.left.owners,
        devices_left: maker.left.devices,
        set_id_left: maker.left.set_id,
        extended_left: maker.left.extended,
        names_left: filled.left.len() as u64,
        times_left: maker.left.times,
    })
}

/// The progress of building a tree, for another thread.
#[derive(Debug, Default)]
pub(crate) struct SharedProgress {
    pub(crate) names: AtomicU64,
    /// Bytes of completed files.
    pub(crate) bytes: AtomicU64,
}

/// The result of building a tree.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    pub(crate) names: u64,
    /// Names that the file system cannot hold, with their directories, without those below them.
    pub(crate) left: Vec<(File, Name)>,
}

/// Builds the tree in an empty directory.
pub(crate) fn fill(
    tree: &Tree,
    contents: &Contents,
    (top, path): (&OwnedFd, &Path),
    maker: &mut Maker,
) -> Result<Fill, Error> {
    fill_telling(
        tree,
        contents,
        (top, path),
        maker,
        &SharedProgress::default(),
    )
}

/// As [`fill`], and reports its progress.
pub(crate) fn fill_telling(
    tree: &Tree,
    contents: &Contents,
    (top, path): (&OwnedFd, &Path),
    maker: &mut Maker,
    told: &SharedProgress,
) -> Result<Fill, Error> {
    let mut filling = Filling {
        tree,
        contents,
        maker,
        top,
        path: path.to_owned(),
        first: BTreeMap::new(),
        filled: Fill::default(),
        told,
    };
    if let Some(root) = tree.root() {
        filling.directory(root)?;
    }
    Ok(filling.filled)
}

pub(crate) fn last_epoch(folder: &Path) -> Result<u64, log::Error> {
    let mut reader = Reader::open_log(folder)?;
    let mut last = None;
    while let Some(located) = reader.read()? {
        if let Entry::Epoch { number } = located.record.entry {
            last = Some(number);
        }
    }
    last.ok_or_else(|| log::Error::NoEpochs(folder.to_owned()))
}

pub(crate) fn empty_directory(to: &Path) -> Result<OwnedFd, Error> {
    let failed = |cause| Error::Io {
        path: to.to_owned(),
        cause,
    };
    let folder = match Folder::create(to, Mode::RWXU) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::Occupied(to.to_owned()));
        }
        folder => folder.map_err(failed)?,
    };
    if !folder.names().map_err(failed)?.is_empty() {
        return Err(Error::Occupied(to.to_owned()));
    }
    let closed = fs::fchmod(&folder, Mode::RWXU);
    closed.map_err(|errno| failed(errno.into()))?;
    Ok(folder.into_fd())
}

fn open_directory(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    open_beneath(at, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())
}

/// The log's state of an epoch.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) contents: Contents,
    /// When the epoch was written, in nanoseconds since 1970.
    at_ns: u64,
}

impl State {
    pub(crate) fn read(folder: &Path, epoch: u64) -> Result<Self, log::Error> {
        let mut reader = Reader::open_log(folder)?;
        let mut state = Self::default();
        while let Some(located) = reader.read()? {
            state.follow(folder, &located)?;
            if located.record.entry == (Entry::Epoch { number: epoch }) {
                state.at_ns = located.record.at_ns;
                return Ok(state);
            }
        }
        Err(log::Error::NoEpoch {
            folder: folder.to_owned(),
            epoch,
        })
    }

    /// Applies the next record of the log in this folder.
    pub(crate) fn follow(
        &mut self,
        folder: &Path,
        located: &LocatedRecord,
    ) -> Result<(), log::Error> {
        let folded = self.tree.fold(&located.record);
        folded.map_err(|invalid| log::Error::Invalid {
            folder: folder.to_owned(),
            invalid,
        })?;
        self.contents.follow(located);
        Ok(())
    }
}

/// Builds a tree.
#[derive(Debug)]
struct Filling<'a> {
    tree: &'a Tree,
    contents: &'a Contents,
    maker: &'a mut Maker,
    top: &'a OwnedFd,
    /// The path of the current file, for errors.
    path: PathBuf,
    /// For a file with several names, the place of the first.
    first: BTreeMap<File, (File, Name)>,
    filled: Fill,
    told: &'a SharedProgress,
}

/// A directory whose entries are being created.
#[derive(Debug)]
struct Level {
    file: File,
    fd: OwnedFd,
    left: Vec<(Name, File)>,
}

impl Filling<'_> {
    /// Creates everything below the root. The deepest directories get their attributes first,
    /// because creating an entry changes those of its directory.
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
            let below = match self.entry((directory, level.fd.as_fd()), &name, file) {
                Err(error) => self.leave_out((directory, &name), file, error)?,
                below => below?,
            };
            self.told.names.store(self.filled.names, Ordering::Relaxed);
            self.told.bytes.store(self.maker.bytes, Ordering::Relaxed);
            match below {
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
        let children = self.tree.children(file);
        let left = children.map(|(name, file)| (name.clone(), file)).collect();
        Level { file, fd, left }
    }

    /// Creates an entry. For a directory, returns its descriptor, and its contents come next.
    fn entry(
        &mut self,
        (directory, at): (File, BorrowedFd<'_>),
        name: &Name,
        file: File,
    ) -> Result<Option<OwnedFd>, Error> {
        let Some(node) = self.tree.get(file) else {
            return Ok(None);
        };
        let called = OsStr::from_bytes(name.as_bytes());
        if let Some((there, first)) = self.first.get(&file).cloned() {
            let from = self.reach(there)?;
            let first = OsStr::from_bytes(first.as_bytes());
            self.maker.gate.pass().map_err(|e| self.failed(e))?;
            let linked = fs::linkat(&from, first, at, called, AtFlags::empty());
            let linked = self.maker.permitted(linked);
            linked.map_err(|e| self.failed(e))?;
            self.filled.names += 1;
            return Ok(None);
        }
        if !self.maker.makes(&node.kind) {
            self.maker.left.devices += 1;
            return Ok(None);
        }
        let bytes = Bytes {
            extents: self.contents.get(file),
            old: None,
        };
        let made = self.maker.make(at, called, node, bytes);
        made.map_err(|fault| self.fault(fault))?;
        self.filled.names += 1;
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

    /// Continues without an entry that the file system cannot hold.
    fn leave_out(
        &mut self,
        (directory, name): (File, &Name),
        file: File,
        error: Error,
    ) -> Result<Option<OwnedFd>, Error> {
        let errno = match &error {
            Error::Io { cause, .. } => Errno::from_io_error(cause),
            _ => None,
        };
        if !errno.is_some_and(refuses_name) {
            return Err(error);
        }
        if self.filled.left.len() < MAX_WARNINGS {
            tracing::warn!("{error}: the file system cannot hold it; it is left out");
        }
        self.filled.left.push((directory, name.clone()));
        let mut below = vec![file];
        while let Some(directory) = below.pop() {
            for (name, file) in self.tree.children(directory) {
                self.filled.left.push((directory, name.clone()));
                below.push(file);
            }
        }
        Ok(None)
    }

    fn attributes(&mut self, file: File, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(node) = self.tree.get(file) else {
            return Ok(());
        };
        let done = self.maker.attributes(node, fd);
        done.map_err(|errno| self.failed(errno))
    }

    /// Opens a directory that was created, from the top.
    fn reach(&self, directory: File) -> Result<OwnedFd, Error> {
        let mut at = self.top.try_clone().map_err(|error| self.io(error))?;
        for name in self.tree.path(directory).unwrap_or_default() {
            let name = OsStr::from_bytes(name.as_bytes());
            at = open_directory(at.as_fd(), name).map_err(|e| self.failed(e))?;
        }
        Ok(at)
    }

    fn fault(&self, fault: Fault) -> Error {
        match fault {
            Fault::Log(log) => Error::Log(log),
            Fault::Io(cause) => self.io(cause),
        }
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
