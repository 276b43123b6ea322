//! Creates one file at a time: its bytes, then owner, mode, extended attributes and time. The
//! caller decides where, and from which data.

use std::ffi::OsStr;
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::{fs, io::Errno};

use crate::contents::Extents;
use crate::log;
use crate::record::{Attributes, Kind};
use crate::tree::Node;

mod bytes;

use bytes::ByteWriter;

/// The mode bits with which a program runs as the file's owner or group.
pub(crate) const SET_ID: u16 = 0o6000;
/// The prefix of extended attributes that every user may set on their own files.
const HARMLESS: &[u8] = b"user.";
/// The permissions that an owner needs to change the contents of a directory, or the extended
/// attributes of a file.
pub(crate) const OWNER_RWX: u32 = 0o700;
pub(crate) const OWNER_RW: u32 = 0o600;
/// The largest list of names of a file's extended attributes, in bytes.
const MAX_XATTR_LIST: usize = 1 << 16;
/// The number of free blocks and inodes above which a file system does not count as full.
const MIN_FREE: u64 = 1024;

/// The number of omissions of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts {
    /// Files with another owner than in the source, because only root can give files away.
    pub owners: u64,
    /// Device nodes.
    pub devices: u64,
    /// Files without the set-user-ID or set-group-ID bits that they have in the source.
    pub set_id: u64,
    /// Extended attributes that could not be set, or could not be removed.
    pub extended: u64,
    /// Names that the file system cannot hold, without those below them.
    pub names: u64,
    /// Times outside of the range of the file system. The nearest time in the range is set.
    pub times: u64,
}

impl AddAssign for SkipCounts {
    fn add_assign(&mut self, other: Self) {
        self.owners += other.owners;
        self.devices += other.devices;
        self.set_id += other.set_id;
        self.extended += other.extended;
        self.names += other.names;
        self.times += other.times;
    }
}

/// Why a file could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Fault {
    /// The error, if it means that the file system cannot hold this file but could hold others.
    pub(crate) fn exceeded_limit(&self) -> Option<Errno> {
        match self {
            Self::Log(_) => None,
            Self::Io(error) => Errno::from_io_error(error).filter(|errno| exceeds_limits(*errno)),
        }
    }
}

/// Whether an error means that the file system cannot hold something.
pub(crate) fn exceeds_limits(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MLINK | Errno::NAMETOOLONG | Errno::FBIG | Errno::ILSEQ | Errno::OPNOTSUPP
    )
}

/// The same for operations that create a name. Some file systems return `EINVAL` for unsupported
/// names.
pub(crate) fn refuses_name(errno: Errno) -> bool {
    errno == Errno::INVAL || exceeds_limits(errno)
}

/// Checked before each system call that changes a replica. A test makes the n-th call and all later
/// ones fail, which leaves the same state as killing the program at that point.
#[derive(Clone, Debug, Default)]
pub struct Gate(Option<Arc<Calls>>);

#[derive(Debug)]
struct Calls {
    left: AtomicU64,
    /// The operation is to end.
    ended: AtomicBool,
}

impl Gate {
    /// A gate that lets this many calls pass.
    pub fn closing_after(calls: u64) -> Self {
        Self(Some(Arc::new(Calls {
            left: AtomicU64::new(calls),
            ended: AtomicBool::new(false),
        })))
    }

    /// A gate that [`Self::close`] can close.
    pub fn closable() -> Self {
        Self::closing_after(u64::MAX)
    }

    /// Lets no more calls pass. A step in progress ends at its next call, as if it were killed
    /// there.
    pub fn close(&self) {
        if let Some(calls) = &self.0 {
            calls.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Lets calls pass again after [`Self::close`].
    pub fn reopen(&self) {
        if let Some(calls) = &self.0 {
            calls.ended.store(false, Ordering::Relaxed);
        }
    }

    /// Whether [`Self::close`] has closed the gate.
    pub fn is_closed(&self) -> bool {
        let calls = self.0.as_ref();
        calls.is_some_and(|calls| calls.ended.load(Ordering::Relaxed))
    }

    /// How many calls may still pass.
    pub fn remaining(&self) -> Option<u64> {
        let calls = self.0.as_ref();
        calls.map(|calls| calls.left.load(Ordering::Relaxed))
    }

    pub(crate) fn pass(&self) -> Result<(), Errno> {
        let Some(calls) = &self.0 else { return Ok(()) };
        if self.is_closed() {
            return Err(Errno::INTR);
        }
        let one_less = |left: u64| left.checked_sub(1);
        calls
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .map(drop)
            .map_err(|_| Errno::IO)
    }
}

/// The sources of a file's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    /// The bytes in the log. `None` for a file that was never written.
    pub(crate) extents: Option<&'a Extents>,
    /// The old file, for bytes that have not changed.
    pub(crate) old: Option<&'a std::fs::File>,
}

/// Creates files, and counts the omissions.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) privileged: bool,
    /// Whether files can be given away.
    pub(crate) owned: bool,
    pub(crate) gate: Gate,
    pub(crate) left: SkipCounts,
    /// Bytes written to files.
    pub(crate) bytes: u64,
}

impl Maker {
    pub(crate) fn new(privileged: bool, gate: Gate) -> Self {
        Self {
            privileged,
            owned: rustix::process::geteuid().is_root(),
            gate,
            left: SkipCounts::default(),
            bytes: 0,
        }
    }

    /// Whether files of this kind are created at all.
    pub(crate) fn makes(&self, kind: &Kind) -> bool {
        self.privileged || !matches!(kind, Kind::CharacterDevice(_) | Kind::BlockDevice(_))
    }

    /// The mode for a file of the source.
    pub(crate) fn mode(&self, node: &Node, attributes: &Attributes) -> u16 {
        if self.privileged || node.kind == Kind::Directory {
            attributes.mode
        } else {
            attributes.mode & !SET_ID
        }
    }

    /// Creates a file completely. A directory is created empty, and only its owner can enter it.
    pub(crate) fn make(
        &mut self,
        at: BorrowedFd<'_>,
        name: &OsStr,
        node: &Node,
        bytes: Bytes<'_>,
    ) -> Result<(), Fault> {
        self.gate.pass()?;
        let (mode, none) = (Mode::RUSR | Mode::WUSR, 0);
        let special = |made: Result<(), Errno>| self.permitted(made);
        let node_of = |kind, device| special(fs::mknodat(at, name, kind, mode, device));
        match &node.kind {
            Kind::Directory => return Ok(fs::mkdirat(at, name, Mode::RWXU)?),
            Kind::Regular => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let to = fs::openat(at, name, flags, mode)?.into();
                let filled = self.byte_writer().fill(&to, node.size, bytes);
                if let Err(fault) = &filled
                    && fault.exceeded_limit().is_some()
                {
                    fs::unlinkat(at, name, AtFlags::empty())?;
                }
                filled?;
            }
            Kind::Symlink(target) => {
                special(fs::symlinkat(OsStr::from_bytes(target), at, name))?;
            }
            Kind::Fifo => node_of(FileType::Fifo, none)?,
            Kind::Socket => node_of(FileType::Socket, none)?,
            Kind::CharacterDevice(device) => node_of(FileType::CharacterDevice, *device)?,
            Kind::BlockDevice(device) => node_of(FileType::BlockDevice, *device)?,
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(at, name, flags, Mode::empty())?;
        Ok(self.attributes(node, fd.as_fd())?)
    }

    /// Maps `EPERM` to `EOPNOTSUPP` for root. File systems without symbolic links, special files or
    /// hard links return `EPERM` even to root.
    pub(crate) fn permitted<T>(&self, made: Result<T, Errno>) -> Result<T, Errno> {
        match made {
            Err(Errno::PERM) if self.owned => Err(Errno::OPNOTSUPP),
            made => made,
        }
    }

    /// Changes the bytes of the file. Repeating the operation has no further effect.
    pub(crate) fn rewrite(
        &mut self,
        to: &std::fs::File,
        size: u64,
        extents: Option<&Extents>,
    ) -> Result<(), Fault> {
        self.byte_writer().rewrite(to, size, extents)
    }

    fn byte_writer(&mut self) -> ByteWriter<'_> {
        ByteWriter::new(&self.gate, &mut self.bytes)
    }

    /// Sets owner, mode, extended attributes and time, in an order in which none undoes another.
    pub(crate) fn attributes(&mut self, node: &Node, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let by_path = by_path(fd);
        if let Some(attributes) = &node.attributes {
            self.owner(attributes, fd)?;
        }
        match node.kind {
            // A symbolic link has no mode.
            Kind::Symlink(_) => self.extended(node, &by_path)?,
            _ => self.mode_and_extended(node, &by_path)?,
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
            self.gate.pass()?;
            fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH)?;
            let seconds = times.last_modification.tv_sec;
            if i32::try_from(seconds).is_err() && fs::fstat(fd)?.st_mtime != seconds {
                self.left.times += 1;
            }
        }
        Ok(())
    }

    fn mode_and_extended(&mut self, node: &Node, by_path: &Path) -> Result<(), Errno> {
        let Some(attributes) = &node.attributes else {
            return self.extended(node, by_path);
        };
        let mode = self.mode(node, attributes);
        self.left.set_id += u64::from(mode != attributes.mode);
        let mode = u32::from(mode);
        // Without root, extended attributes can be changed only while the mode allows writing.
        let open = match node.kind {
            _ if self.owned => mode,
            Kind::Directory => mode | OWNER_RWX,
            _ => mode | OWNER_RW,
        };
        self.change_mode(by_path, open)?;
        self.extended(node, by_path)?;
        match open == mode {
            true => Ok(()),
            false => self.change_mode(by_path, mode),
        }
    }

    fn change_mode(&self, by_path: &Path, mode: u32) -> Result<(), Errno> {
        self.gate.pass()?;
        fs::chmod(by_path, Mode::from_raw_mode(mode))
    }

    fn owner(&mut self, attributes: &Attributes, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if !self.owned {
            self.left.owners += 1;
            return Ok(());
        }
        self.gate.pass()?;
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        match fs::chownat(fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
            // The user namespace has no such owner.
            Err(Errno::INVAL) => {
                self.left.owners += 1;
                Ok(())
            }
            given => given,
        }
    }

    fn allows(&self, name: &[u8]) -> bool {
        self.privileged || name.starts_with(HARMLESS)
    }

    fn extended(&mut self, node: &Node, by_path: &Path) -> Result<(), Errno> {
        for name in names(by_path) {
            let stays = node.extended.iter().any(|(kept, _)| *kept == name);
            if !stays && self.allows(&name) {
                self.gate.pass()?;
                match fs::removexattr(by_path, name.as_slice()) {
                    Err(Errno::NODATA) => {}
                    Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(full),
                    // An attribute that came with the directory and cannot be removed.
                    done => self.left.extended += u64::from(done.is_err()),
                }
            }
        }
        let (allowed, left): (Vec<_>, Vec<_>) =
            (node.extended.iter()).partition(|(name, _)| self.allows(name));
        self.left.extended += left.len() as u64;
        let mut refused = Vec::new();
        for (name, value) in allowed {
            if !self.set(by_path, name, value)? {
                refused.push((name, value));
            }
        }
        // Old values may have taken the space of new ones, so the refused attributes are removed
        // and tried again. An attribute that is refused permanently must not keep its old value.
        for (name, _) in &refused {
            self.gate.pass()?;
            let _none = fs::removexattr(by_path, name.as_slice());
        }
        for (name, value) in refused {
            self.left.extended += u64::from(!self.set(by_path, name, value)?);
        }
        Ok(())
    }

    /// Whether the file accepts the attribute.
    fn set(&self, by_path: &Path, name: &[u8], value: &[u8]) -> Result<bool, Errno> {
        self.gate.pass()?;
        match fs::setxattr(by_path, name, value, XattrFlags::empty()) {
            // ext4 also returns this for an attribute that does not fit into one of its blocks.
            Err(Errno::NOSPC) if has_room(by_path) => Ok(false),
            Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(full),
            done => Ok(done.is_ok()),
        }
    }
}

/// Whether the file with this name, which is not a symbolic link, has an attribute that the
/// source's does not have and that could be removed.
pub(crate) fn has_more(node: &Node, at: BorrowedFd<'_>, name: &OsStr) -> bool {
    let path = by_path(at).join(name);
    // Most files have no attributes, or few.
    let mut all = vec![0; 256];
    let mut listed = fs::llistxattr(&path, all.as_mut_slice());
    if let Err(Errno::RANGE) = listed {
        all.resize(MAX_XATTR_LIST, 0);
        listed = fs::llistxattr(&path, all.as_mut_slice());
    }
    all.truncate(listed.unwrap_or(0));
    split(&all).any(|name| {
        name.starts_with(HARMLESS) && !node.extended.iter().any(|(kept, _)| kept == name)
    })
}

/// Whether the file system has much more space than an attribute needs.
fn has_room(path: &Path) -> bool {
    fs::statvfs(path).is_ok_and(|there| there.f_bavail > MIN_FREE && there.f_favail > MIN_FREE)
}

/// The only path to a file that is open with `O_PATH`. An open symbolic link is not followed.
pub(crate) fn by_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The names of the extended attributes. Empty if they are not supported.
fn names(path: &Path) -> Vec<Vec<u8>> {
    let mut names = vec![0; MAX_XATTR_LIST];
    let length = fs::listxattr(path, names.as_mut_slice()).unwrap_or(0);
    names.truncate(length);
    split(&names).map(<[u8]>::to_vec).collect()
}

fn split(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = names.split(|byte| *byte == 0);
    all.filter(|name| !name.is_empty())
}
