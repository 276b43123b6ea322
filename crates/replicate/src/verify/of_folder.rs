//! Reads the tree of a folder. It follows no symbolic link and changes nothing. Mounted file
//! systems are not part of the tree.

use std::ffi::OsStr;
use std::fs::File as Opened;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use sys::holes;

use super::Scope;
use super::side::{Fault, Metadata, Side};
use crate::patterns::Filter;
use crate::record::{Attributes, Kind, Name, Xattr};

/// A bound on the size of an extended attribute, and of the list of their names.
const MAX_LIST: usize = 1 << 20;
const TYPE: u16 = 0o170_000;
const DIRECTORY: u16 = 0o040_000;
/// `BTRFS_SUPER_MAGIC`, and the inode of a subvolume's root, which no other directory has.
const BTRFS: fs::FsWord = 0x9123_683e;
const BTRFS_FIRST: u64 = 256;

#[derive(Debug)]
pub(super) struct OfFolder {
    top: PathBuf,
    scope: Scope,
    /// The mount ID of the root.
    mount: u64,
    /// Selects what belongs to the tree.
    filter: Filter,
    /// The number of names with a mount on them, and of btrfs subvolumes.
    pub(super) mounted: u64,
    /// The number of names that the patterns exclude, without those below them.
    pub(super) left_out: u64,
}

/// An open file, independent of its current name.
#[derive(Debug)]
pub(super) struct OpenEntry {
    /// The path below the root.
    below: Vec<u8>,
    path: OwnedFd,
    opened: Option<Opened>,
    /// A range known to be data: its start and end.
    data: (u64, u64),
}

impl OfFolder {
    pub(super) fn new(top: &Path, scope: Scope, filter: Filter) -> Self {
        Self {
            top: top.to_owned(),
            scope,
            mount: 0,
            filter,
            mounted: 0,
            left_out: 0,
        }
    }

    fn extended(path: &Path, allowed: impl Fn(&[u8]) -> bool) -> Result<Vec<Xattr>, Errno> {
        let names = match growing(|room| fs::listxattr(path, room)) {
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            names => names?,
        };
        let mut all = Vec::new();
        for name in names.split(|byte| *byte == 0) {
            if name.is_empty() || !allowed(name) {
                continue;
            }
            match growing(|room| fs::getxattr(path, name, room)) {
                Ok(value) => all.push((name.to_vec(), value)),
                // The attribute was removed meanwhile.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno),
            }
        }
        all.sort();
        Ok(all)
    }

    fn opened(found: &mut OpenEntry) -> io::Result<&Opened> {
        let opened = match found.opened.take() {
            Some(opened) => opened,
            None => open(&found.path)?.into(),
        };
        Ok(found.opened.insert(opened))
    }
}

impl Side for OfFolder {
    type Lookup = OpenEntry;

    fn root(&mut self) -> Result<OpenEntry, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = fs::openat(CWD, &self.top, flags, Mode::empty())?;
        self.mount = stat(&path)?.stx_mnt_id;
        Ok(OpenEntry::new(path, Vec::new()))
    }

    fn names(&mut self, directory: &OpenEntry) -> Result<Vec<Name>, Fault> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(fs::openat(&directory.path, ".", flags, Mode::empty())?)? {
            names.extend(Name::new(entry?.file_name().to_bytes()));
        }
        names.sort();
        Ok(names)
    }

    fn find(&mut self, directory: &OpenEntry, name: &Name) -> Result<Option<OpenEntry>, Fault> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let called = OsStr::from_bytes(name.as_bytes());
        let path = match fs::openat(&directory.path, called, flags, Mode::empty()) {
            Ok(path) => path,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let stat = stat(&path)?;
        if stat.stx_mnt_id != self.mount || is_subvolume(&path, &stat) {
            self.mounted += 1;
            return Ok(None);
        }
        let below = below(&directory.below, name);
        if !self
            .filter
            .admits(&below, stat.stx_mode & TYPE == DIRECTORY)
        {
            self.left_out += 1;
            return Ok(None);
        }
        let device = matches!(stat.stx_mode & TYPE, 0o020_000 | 0o060_000);
        Ok((self.scope.privileged || !device).then(|| OpenEntry::new(path, below)))
    }

    fn seen(&mut self, found: &OpenEntry) -> Result<Metadata, Fault> {
        let stat = stat(&found.path)?;
        let by_path = PathBuf::from(format!("/proc/self/fd/{}", found.path.as_raw_fd()));
        let device = fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
        let kind = match stat.stx_mode & TYPE {
            0o100_000 => Kind::Regular,
            0o040_000 => Kind::Directory,
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            0o020_000 => Kind::CharacterDevice(device),
            0o060_000 => Kind::BlockDevice(device),
            _ => Kind::Symlink(fs::readlinkat(&found.path, "", Vec::new())?.into_bytes()),
        };
        let shared = stat.stx_nlink > 1 && kind != Kind::Directory;
        let holder = fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        let size = if kind == Kind::Regular {
            stat.stx_size
        } else {
            0
        };
        let seen = Metadata {
            attributes: Attributes {
                mode: stat.stx_mode & !TYPE,
                uid: stat.stx_uid,
                gid: stat.stx_gid,
                modified_ns: nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            },
            extended: Self::extended(&by_path, |name| self.scope.compares(name))?,
            size,
            shared: shared.then_some((stat.stx_ino, holder)),
            changed_ns: nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            kind,
        };
        Ok(self.scope.narrow(seen))
    }

    fn data_from(&mut self, found: &mut OpenEntry, at: u64) -> Result<Option<u64>, Fault> {
        let (from, to) = found.data;
        if (from..to).contains(&at) {
            return Ok(Some(at));
        }
        let opened = Self::opened(found)?;
        let data = match holes::next_data(opened, at) {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(None),
            Err(cause) => match Errno::from_io_error(&cause) {
                // The file system does not support holes.
                Some(Errno::INVAL | Errno::OPNOTSUPP) => at,
                _ => return Err(cause.into()),
            },
        };
        let hole = holes::next_hole(opened, data).ok().flatten();
        let hole = hole.unwrap_or(u64::MAX);
        found.data = (data, hole);
        Ok(Some(data))
    }

    fn read(&mut self, found: &mut OpenEntry, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        let opened = Self::opened(found)?;
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match opened.read_at(rest, at + filled as u64) {
                // The file has become shorter. Its size will show that.
                Ok(0) => {
                    rest.fill(0);
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn changed(&mut self, found: &OpenEntry, seen: &Metadata) -> Result<bool, Fault> {
        let stat = stat(&found.path)?;
        let now = nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec);
        Ok(now != seen.changed_ns || seen.kind == Kind::Regular && stat.stx_size != seen.size)
    }
}

impl OpenEntry {
    fn new(path: OwnedFd, below: Vec<u8>) -> Self {
        Self {
            below,
            path,
            opened: None,
            data: (0, 0),
        }
    }
}

fn below(directory: &[u8], name: &Name) -> Vec<u8> {
    match directory.is_empty() {
        true => name.as_bytes().to_vec(),
        false => [directory, name.as_bytes()].join(&b'/'),
    }
}

/// Opens for reading what is open with `O_PATH`, without updating the access time if that is
/// allowed.
fn open(path: &OwnedFd) -> Result<OwnedFd, Errno> {
    let by_path = format!("/proc/self/fd/{}", path.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match fs::openat(CWD, &by_path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => fs::openat(CWD, &by_path, flags, Mode::empty()),
        opened => opened,
    }
}

fn stat(path: &OwnedFd) -> Result<Statx, Errno> {
    let what = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    fs::statx(path, "", AtFlags::EMPTY_PATH, what)
}

/// Whether this is the root of a btrfs subvolume, which is not part of the tree around it.
fn is_subvolume(path: &OwnedFd, stat: &Statx) -> bool {
    let first = stat.stx_mode & TYPE == DIRECTORY && stat.stx_ino == BTRFS_FIRST;
    first && fs::fstatfs(path).is_ok_and(|there| there.f_type == BTRFS)
}

fn nanoseconds(seconds: i64, nanoseconds: u32) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds.into())
}

/// Calls `read` with a buffer that grows until the result fits.
fn growing(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; 4096];
    loop {
        match read(room.as_mut_slice()) {
            Ok(length) => {
                room.truncate(length);
                return Ok(room);
            }
            Err(Errno::RANGE) if room.len() < MAX_LIST => room.resize(room.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}
