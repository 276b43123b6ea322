//! Reads files of the source by file handle, independent of their current names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File as Opened;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FileStat, fstat, fstatat};
use rustix::fs::{StatxAttributes, StatxFlags};
use sys::handle::{self, Handle};
use sys::holes;

use super::event::{Event, What, nanoseconds};
use super::format::{self, Format};
use super::overlay::{self, Answer, OverlayFiles};
use super::program::Programs;
use super::xattr;
use super::{Error, Options, mounts};
use crate::record::{self, Attributes, File, Kind, Name, Xattr};

/// How many times the opening of a busy file is tried.
const ATTEMPTS: u32 = 1000;
/// The delay between attempts. Together they last as long as the kernel gives the holder of a
/// lease, which is 45 s.
const LEASE: Duration = Duration::from_millis(50);
const TYPE: u32 = 0o170_000;
/// The smallest block that can be a hole, in bytes.
const BLOCK: usize = 4096;
/// Ranges up to this size, in bytes, are read to find out whether they contain a hole.
const MAX_PROBED: u64 = 256 << 10;
/// An identifier that no file has.
const STRANGER: File = File {
    inode: u64::MAX,
    generation: u32::MAX,
};

/// Access to the file system that contains the tree.
#[derive(Debug)]
pub(super) struct Source {
    root: OwnedFd,
    name: File,
    path: PathBuf,
    format: Format,
    /// The file system writes data to its journal, too.
    journals_data: bool,
    /// The files of an overlay, if the tree is on one.
    overlay: Option<OverlayFiles>,
    /// Directories with names that were left out at the last listing because something is mounted
    /// on them.
    hidden: BTreeSet<File>,
    /// Names of subvolumes that were left out, and those that have not been reported yet.
    subvolumes: BTreeSet<(File, Name)>,
    untold: Vec<(File, Name)>,
}

/// The result of looking up a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    File(File),
    /// Something mounted on the file hides it.
    Hidden,
    Gone,
}

/// A range of a file that is all data or all hole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stretch {
    Data { offset: u64, length: u64 },
    Hole { offset: u64, length: u64 },
}

impl Source {
    /// Opens the tree below `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |cause: io::Error| Error::Tree {
            path: path.to_owned(),
            cause,
        };
        let root = Opened::open(path).map_err(failed)?;
        if !root.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let root = OwnedFd::from(root);
        let unknown = || Error::FileSystem {
            path: path.to_owned(),
            on: format!(
                "none of the file systems that can be followed: {}",
                format::ALL
            ),
        };
        let format = Format::of(&root).map_err(failed)?.ok_or_else(unknown)?;
        if mounts::maps_owners(&root).map_err(failed)? {
            return Err(Error::FileSystem {
                path: path.to_owned(),
                on: "a mount that maps owners, of which the file system tells otherwise: name the tree where it is \
                     mounted without"
                    .to_owned(),
            });
        }
        if format == Format::Ext4 && mounts::has_option(&root, &["lazytime"]).map_err(failed)? {
            return Err(Error::FileSystem {
                path: path.to_owned(),
                on: "ext4 with lazytime, which does not tell of all times: mount -o remount,nolazytime".to_owned(),
            });
        }
        let journals_data = format == Format::Ext4
            && mounts::has_option(&root, &["data=journal"]).map_err(failed)?;
        let (name, overlay) = if let Format::Overlay { .. } = format {
            let (name, overlay) = OverlayFiles::new(&root).map_err(failed)?;
            (name, Some(overlay))
        } else {
            let handle = Handle::of(&root, "".as_ref()).map_err(failed)?;
            (format.file(&handle).ok_or_else(unknown)?, None)
        };
        Ok(Self {
            root,
            name,
            path: path.to_owned(),
            format,
            journals_data,
            overlay,
            hidden: BTreeSet::new(),
            subvolumes: BTreeSet::new(),
            untold: Vec::new(),
        })
    }

    /// Learns from the programs how an overlay identifies its files in events.
    pub(super) fn attach(&mut self, programs: &Programs) -> Result<(), Error> {
        let Some(files) = &mut self.overlay else {
            return Ok(());
        };
        let answers = programs.maps().answers.try_clone();
        let answers = answers.map_err(Error::bpf("duplicating a map's descriptor"))?;
        let answer = files.attach(self.name, answers);
        let Answer { magic, .. } = answer.map_err(|cause| self.failed(self.name, cause))?;
        let format = self.format.above(magic);
        self.format = format.map_err(|on| Error::FileSystem {
            path: self.path.clone(),
            on,
        })?;
        Ok(())
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// The identifier of the root.
    pub(super) fn name(&self) -> File {
        self.name
    }

    /// The identity of the tree, beside its root's inode.
    pub(super) fn identity(&self) -> Result<record::Source, Error> {
        let volume = self.format.volume(&self.root);
        let volume = volume.map_err(|cause| Error::Tree {
            path: self.path.clone(),
            cause,
        })?;
        let path = self.path.canonicalize();
        let path = path.unwrap_or_else(|_| self.path.clone());
        Ok(record::Source {
            path: path.into_os_string().into_vec(),
            file_system: self.format.name().to_owned(),
            volume,
        })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Checks that the file system reports all changes, as far as is known before attaching.
    pub(super) fn check(&self, options: &Options) -> Result<(), Error> {
        if self.format.silent() && !options.look {
            let format = self.format.name();
            return Err(Error::Silent { format });
        }
        options.pin.as_ref().map_or(Ok(()), |pin| pin.check(self))
    }

    /// Whether the file system can have files outside of the tree that may enter it.
    pub(super) fn has_outside(&self) -> bool {
        self.overlay.is_none() && !self.format.is_first(self.name)
    }

    /// Whether dirty pages become clean only when the file system commits its journal.
    pub(super) fn journals_data(&self) -> bool {
        self.journals_data
    }

    /// Whether the tree is on an overlay, whose files are kept open.
    pub(super) fn is_overlay(&self) -> bool {
        self.overlay.is_some()
    }

    /// Whether an overlay may have copied the file up by now. `over` says that the operation has
    /// ended.
    pub(super) fn is_copied(&mut self, file: File, over: bool) -> Result<bool, Error> {
        let copied = self
            .overlay
            .as_mut()
            .map(|files| files.is_copied(file, over));
        let copied = copied.transpose();
        Ok(copied.map_err(|cause| self.failed(file, cause))? == Some(true))
    }

    /// The files that an identifier in an event may stand for.
    pub(super) fn called(&self, file: File) -> Vec<File> {
        match &self.overlay {
            Some(files) => files.named(file.inode),
            None => vec![file],
        }
    }

    /// Translates an event into one for each file that it may be about.
    pub(super) fn translate(&self, mut event: Event) -> Vec<Event> {
        if !self.is_overlay() {
            return vec![event];
        }
        let first = |file| self.called(file).first().copied().unwrap_or(STRANGER);
        if let What::New(state) | What::State(state) | What::Unlink(state) = &mut event.what {
            state.parent = first(state.parent);
            if let Some((directory, _)) = &mut state.name {
                *directory = first(*directory);
            }
        }
        let mut files = self.called(event.file);
        if files.is_empty() {
            files.push(STRANGER);
        }
        let events = files.into_iter().map(|file| Event {
            file,
            ..event.clone()
        });
        events.collect()
    }

    /// Forgets a file that is no longer part of the tree.
    pub(super) fn forget(&mut self, file: File) {
        self.hidden.remove(&file);
        if let Some(files) = &mut self.overlay {
            files.forget(file);
        }
    }

    /// Opens a file without updating its access time. `None` if it is gone.
    pub(super) fn file(&self, file: File, flags: OFlag) -> Result<Option<OwnedFd>, Error> {
        let flags = if flags.contains(OFlag::O_PATH) {
            flags | OFlag::O_NOFOLLOW
        } else {
            flags | OFlag::O_NOATIME | OFlag::O_NONBLOCK
        };
        if let Some(files) = &self.overlay {
            return files
                .open(file, flags)
                .map_err(|cause| self.failed(file, cause));
        }
        let handle = self.format.handle(file);
        patiently(|| handle.open(&self.root, flags)).map_err(|cause| self.failed(file, cause))
    }

    /// Makes the next store to the range one that is reported. Returns whether the file is mapped,
    /// if that is known at once.
    pub(super) fn clean(
        &self,
        file: File,
        offset: u64,
        length: u64,
    ) -> Result<Option<bool>, Error> {
        let Some(descriptor) = self.file(file, OFlag::O_RDONLY)? else {
            return Ok(None);
        };
        let cleaned = match &self.overlay {
            Some(files) => files.clean(&descriptor, self.format.silent()).map(Some),
            None if self.journals_data => {
                handle::clean_journalled(descriptor, offset, length).map(|()| None)
            }
            None => handle::clean(descriptor, offset, length).map(|()| None),
        };
        cleaned.map_err(|cause| self.failed(file, cause))
    }

    /// Waits for a writer that holds the file's lock, by an operation that takes the same lock.
    pub(super) fn wait(&self, file: File, kind: &Kind) -> Result<(), Error> {
        match kind {
            Kind::Regular => {
                let Some(descriptor) = self.file(file, OFlag::O_RDONLY)? else {
                    return Ok(());
                };
                // On xfs a seek does not take the lock, and on others a read does not.
                holes::next_data(&descriptor, 0).map_err(|cause| self.failed(file, cause))?;
                self.read(file, &descriptor, 0, 1)?;
            }
            Kind::Directory => {
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
                if let Some(descriptor) = self.file(file, flags)? {
                    let failed = |errno: Errno| self.failed(file, errno.into());
                    let mut entries = Dir::from_fd(descriptor).map_err(failed)?;
                    match entries.iter().next().transpose() {
                        // The directory was removed.
                        Ok(_) | Err(Errno::ENOENT) => {}
                        Err(errno) => return Err(failed(errno)),
                    }
                }
            }
            _ => {
                if let Some(descriptor) = self.file(file, OFlag::O_PATH)? {
                    xattr::wait_for_lock(&descriptor);
                }
            }
        }
        Ok(())
    }

    pub(super) fn stat(&self, file: File) -> Result<Option<FileStat>, Error> {
        let Some(descriptor) = self.file(file, OFlag::O_PATH)? else {
            return Ok(None);
        };
        let stat = fstat(&descriptor).map_err(|errno| self.failed(file, errno.into()))?;
        Ok(Some(stat))
    }

    /// The extended attributes. `None` if the file is gone or they are unavailable.
    pub(super) fn extended(&self, file: File) -> Result<Option<Vec<Xattr>>, Error> {
        let Some(descriptor) = self.file(file, OFlag::O_PATH)? else {
            return Ok(None);
        };
        xattr::read(&descriptor).map_err(|errno| self.failed(file, errno.into()))
    }

    /// The kind of the file. `None` if it is gone.
    pub(super) fn kind(&self, file: File, stat: &FileStat) -> Result<Option<Kind>, Error> {
        if stat.st_mode & TYPE != 0o120_000 {
            return Ok(kind_of(stat.st_mode, stat.st_rdev));
        }
        Ok(self.target(file)?.map(Kind::Symlink))
    }

    pub(super) fn target(&self, file: File) -> Result<Option<Vec<u8>>, Error> {
        let Some(descriptor) = self.file(file, OFlag::O_PATH)? else {
            return Ok(None);
        };
        match readlinkat(&descriptor, "") {
            Ok(target) => Ok(Some(target.into_vec())),
            Err(errno) => Err(self.failed(file, errno.into())),
        }
    }

    /// The names in a directory that are on its file system and wanted. `None` if the directory is
    /// gone. `wanted` may ask whether a name is a directory.
    pub(super) fn list(
        &mut self,
        directory: File,
        wanted: impl Fn(&Name, &dyn Fn() -> Result<bool, Errno>) -> Result<bool, Errno>,
    ) -> Result<Option<Vec<(Name, File)>>, Error> {
        let Some(descriptor) = self.file(directory, OFlag::O_RDONLY | OFlag::O_DIRECTORY)? else {
            return Ok(None);
        };
        let within = descriptor.try_clone();
        let within = within.map_err(|cause| self.failed(directory, cause))?;
        let entries = Dir::from_fd(descriptor);
        let mut entries = entries.map_err(|errno| self.failed(directory, errno.into()))?;
        let mut names = Vec::new();
        let mut hides = false;
        for entry in entries.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                // The entry was removed.
                Err(Errno::ENOENT) => return Ok(None),
                Err(errno) => return Err(self.failed(directory, errno.into())),
            };
            let Ok(name) = Name::new(entry.file_name().to_bytes()) else {
                continue;
            };
            let is_directory = || match entry.file_type() {
                Some(kind) => Ok(kind == Type::Directory),
                None => directory_at(&within, &name),
            };
            match wanted(&name, &is_directory) {
                Ok(true) => {}
                Ok(false) | Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(self.failed(directory, errno.into())),
            }
            let found = self.find(&within, &name, entry.ino());
            let found = found.map_err(|cause| self.failed(directory, cause))?;
            match found {
                Lookup::File(file) => names.push((name, file)),
                Lookup::Hidden => {
                    hides = true;
                    self.note_subvolume(directory, &within, &name);
                }
                Lookup::Gone => {}
            }
        }
        match hides {
            true => self.hidden.insert(directory),
            false => self.hidden.remove(&directory),
        };
        Ok(Some(names))
    }

    /// Returns subvolumes found since the last call. They are not part of the tree and were left
    /// out.
    pub(super) fn take_subvolumes(&mut self) -> Vec<(File, Name)> {
        std::mem::take(&mut self.untold)
    }

    fn note_subvolume(&mut self, directory: File, within: &OwnedFd, name: &Name) {
        let Format::Btrfs { .. } = self.format else {
            return;
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW | rustix::fs::AtFlags::NO_AUTOMOUNT;
        let path = OsStr::from_bytes(name.as_bytes());
        let stat = rustix::fs::statx(within, path, flags, StatxFlags::INO);
        let is_one = stat.is_ok_and(|stat| {
            format::is_first_of_subvolume(stat.stx_ino)
                && !stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        });
        let place = (directory, name.clone());
        if is_one && self.subvolumes.insert(place.clone()) {
            self.untold.push(place);
        }
    }

    /// Directories with names that were left out because something is mounted on them.
    pub(super) fn hidden(&self) -> impl Iterator<Item = File> {
        self.hidden.iter().copied()
    }

    fn find(&mut self, within: &OwnedFd, name: &Name, inode: u64) -> io::Result<Lookup> {
        if let Some(files) = &mut self.overlay {
            return files.find(within, name);
        }
        match Handle::of(within, OsStr::from_bytes(name.as_bytes())) {
            // The inode number of a mounted root differs from that of the directory entry.
            Ok(handle) => Ok(match self.format.file(&handle) {
                Some(file) if file.inode == inode => Lookup::File(file),
                _ => Lookup::Hidden,
            }),
            // Something without file handles is mounted there.
            Err(cause) if cause.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {
                Ok(Lookup::Hidden)
            }
            Err(cause) if gone(&cause) => Ok(Lookup::Gone),
            Err(cause) => Err(cause),
        }
    }

    /// The inode number of a name in a directory. `None` if there is no such name.
    pub(super) fn inode_of(&self, directory: File, name: &Name) -> Result<Option<u64>, Error> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Some(within) = self.file(directory, flags)? else {
            return Ok(None);
        };
        let found = overlay::open_entry(&within, name);
        let found = found.map_err(|cause| self.failed(directory, cause))?;
        Ok(found.map(|(_, status)| status.stx_ino))
    }

    /// The data and holes between two offsets, up to the end of the file.
    pub(super) fn stretches(
        &self,
        file: File,
        descriptor: &OwnedFd,
        (start, end): (u64, u64),
    ) -> Result<Vec<Stretch>, Error> {
        let failed = |cause: io::Error| self.failed(file, cause);
        let size = fstat(descriptor)
            .map_err(|errno| failed(errno.into()))?
            .st_size;
        let end = end.min(u64::try_from(size).unwrap_or(0));
        let mut stretches = Vec::new();
        let mut at = start;
        while at < end {
            let data = holes::next_data(descriptor, at).map_err(failed)?;
            let data = data.unwrap_or(end).min(end);
            if data > at {
                stretches.push(Stretch::Hole {
                    offset: at,
                    length: data - at,
                });
            }
            if data == end {
                break;
            }
            if self.is_full(file, descriptor, (data, end))? {
                stretches.push(Stretch::Data {
                    offset: data,
                    length: end - data,
                });
                break;
            }
            let hole = holes::next_hole(descriptor, data).map_err(failed)?;
            at = hole.unwrap_or(end).min(end);
            if at > data {
                stretches.push(Stretch::Data {
                    offset: data,
                    length: at - data,
                });
            }
        }
        Ok(stretches)
    }

    /// Whether a range contains no hole, because none of its blocks is zero. Used where this is
    /// faster than a search for the next hole: tmpfs visits all pages up to that, possibly of the
    /// whole file.
    fn is_full(
        &self,
        file: File,
        descriptor: &OwnedFd,
        (start, end): (u64, u64),
    ) -> Result<bool, Error> {
        if !self.format.silent() || end - start > MAX_PROBED {
            return Ok(false);
        }
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        let bytes = self.read(file, descriptor, start, length)?;
        let zeros = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        // The range may begin within a block.
        let (first, blocks) = bytes.split_at(bytes.len().min(within_block(start)));
        let full = bytes.len() == length && (first.is_empty() || !zeros(first));
        Ok(full && !blocks.chunks(BLOCK).any(zeros))
    }

    /// Reads up to `length` bytes at an offset.
    pub(super) fn read(
        &self,
        file: File,
        descriptor: &OwnedFd,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Error> {
        let opened = descriptor
            .try_clone()
            .map(Opened::from)
            .map_err(|cause| self.failed(file, cause))?;
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            let count = opened
                .read_at(&mut bytes[filled..], offset + filled as u64)
                .map_err(|cause| self.failed(file, cause))?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    pub(super) fn failed(&self, file: File, cause: io::Error) -> Error {
        Error::Read {
            path: self.path.clone(),
            file,
            cause,
        }
    }
}

/// The number of bytes from an offset to the next block.
fn within_block(offset: u64) -> usize {
    let next = offset.next_multiple_of(BLOCK as u64);
    usize::try_from(next - offset).unwrap_or_default()
}

/// The kind of a file with that mode. `None` for a symbolic link, whose target has to be read.
pub(super) fn kind_of(mode: u32, device: u64) -> Option<Kind> {
    Some(match mode & TYPE {
        0o100_000 => Kind::Regular,
        0o040_000 => Kind::Directory,
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        0o020_000 => Kind::CharacterDevice(device),
        0o060_000 => Kind::BlockDevice(device),
        _ => return None,
    })
}

pub(super) fn attributes_of(stat: &FileStat) -> Attributes {
    Attributes {
        mode: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn directory_at(within: &OwnedFd, name: &Name) -> Result<bool, Errno> {
    let stat = fstatat(within, name.as_bytes(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(kind_of(stat.st_mode, 0) == Some(Kind::Directory))
}

/// Opens a file that may be busy. `None` if it is gone.
pub(super) fn patiently(open: impl Fn() -> io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    let mut attempts = 1..ATTEMPTS;
    loop {
        let cause = match open() {
            Ok(descriptor) => return Ok(Some(descriptor)),
            Err(cause) if gone(&cause) => return Ok(None),
            Err(cause) => cause,
        };
        match cause.raw_os_error().map(Errno::from_raw) {
            _ if attempts.next().is_none() => return Err(cause),
            // The kernel also returns this for a directory that is just being removed.
            Some(Errno::ENOMEM) => thread::yield_now(),
            // The holder of a lease is asked to give it up, and has some time to write its data.
            Some(Errno::EAGAIN) => thread::sleep(LEASE),
            _ => return Err(cause),
        }
    }
}

pub(super) fn gone(cause: &io::Error) -> bool {
    let errno = cause.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ESTALE | Errno::ENOENT | Errno::ENXIO))
}
