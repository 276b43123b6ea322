//! Makes one file at a time: its bytes, then owner, mode, extended attributes and time. Where it is made,
//! and of what, others decide.

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

/// Bits of a mode that let whoever executes the file be somebody else.
pub(crate) const SET_ID: u16 = 0o6000;
/// Extended attributes that anybody may set on a file of his own.
const HARMLESS: &[u8] = b"user.";
/// What the owner of a directory, or of a file, needs to change what is in it, or its extended attributes.
pub(crate) const OWNER_RWX: u32 = 0o700;
pub(crate) const OWNER_RW: u32 = 0o600;
/// The names of a file's extended attributes have so many bytes at most.
const MAX_XATTR_LIST: usize = 1 << 16;
/// Blocks and inodes that are free where a file system is not full.
const MIN_FREE: u64 = 1024;

/// What was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts {
    /// Files with another owner than in the source: only root can give files away.
    pub owners: u64,
    /// Device nodes.
    pub devices: u64,
    /// Files without the set-user-ID or set-group-ID bits that they have in the source.
    pub set_id: u64,
    /// Extended attributes: those that could not be set, and those that could not be taken away.
    pub extended: u64,
    /// Names that the file system cannot hold, with all below them.
    pub names: u64,
    /// Times of files that are beyond those that the file system has: its first or its last is set.
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

/// Why a file could not be made.
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
    /// The error of a file system that cannot hold what it is given, and could hold others.
    pub(crate) fn exceeded_limit(&self) -> Option<Errno> {
        match self {
            Self::Log(_) => None,
            Self::Io(error) => Errno::from_io_error(error).filter(|errno| exceeds_limits(*errno)),
        }
    }
}

/// Whether a file system says so of what it cannot hold.
pub(crate) fn exceeds_limits(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MLINK | Errno::NAMETOOLONG | Errno::FBIG | Errno::ILSEQ | Errno::OPNOTSUPP
    )
}

/// The same of what gives a name; names that some file systems do not have are `EINVAL`.
pub(crate) fn refuses_name(errno: Errno) -> bool {
    errno == Errno::INVAL || exceeds_limits(errno)
}

/// Asked before each system call that changes a replica. A test lets the n-th fail, and all that follow:
/// what the program leaves then is what it leaves if it is killed there.
#[derive(Clone, Debug, Default)]
pub struct Gate(Option<Arc<Calls>>);

#[derive(Debug)]
struct Calls {
    left: AtomicU64,
    /// Whoever works is to end.
    ended: AtomicBool,
}

impl Gate {
    /// Lets this many calls pass.
    pub fn closing_after(calls: u64) -> Self {
        Self(Some(Arc::new(Calls {
            left: AtomicU64::new(calls),
            ended: AtomicBool::new(false),
        })))
    }

    /// One that [`Self::close`] closes.
    pub fn closable() -> Self {
        Self::closing_after(u64::MAX)
    }

    /// Lets no more pass, whoever asks: a step that is under way ends at its next call, as if it were killed there.
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

    /// Whether [`Self::close`] closed it.
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

/// What the bytes of a file are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    /// What the log says of them; none for a file that nothing was written to.
    pub(crate) extents: Option<&'a Extents>,
    /// What is as it was is there.
    pub(crate) old: Option<&'a std::fs::File>,
}

/// Makes files, and counts what it leaves out.
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

    /// Whether such a file is made at all.
    pub(crate) fn makes(&self, kind: &Kind) -> bool {
        self.privileged || !matches!(kind, Kind::CharacterDevice(_) | Kind::BlockDevice(_))
    }

    /// The mode that a file of the source gets.
    pub(crate) fn mode(&self, node: &Node, attributes: &Attributes) -> u16 {
        if self.privileged || node.kind == Kind::Directory {
            attributes.mode
        } else {
            attributes.mode & !SET_ID
        }
    }

    /// Makes what is no directory whole; a directory empty, and only its owner can enter it.
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

    /// A file system that has no symlinks, special files or further links says to root as well that they are not permitted.
    pub(crate) fn permitted<T>(&self, made: Result<T, Errno>) -> Result<T, Errno> {
        match made {
            Err(Errno::PERM) if self.owned => Err(Errno::OPNOTSUPP),
            made => made,
        }
    }

    /// Changes what is in the file. Done twice, it is done as once.
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

    /// Owner, mode, extended attributes and time, in the order in which none undoes another.
    pub(crate) fn attributes(&mut self, node: &Node, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let by_path = by_path(fd);
        if let Some(attributes) = &node.attributes {
            self.owner(attributes, fd)?;
        }
        match node.kind {
            // It has no mode of its own.
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
        // Who is not root changes the attributes of what it may write to alone.
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
            // A user namespace does not have that owner.
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
                    // One that came with the directory, and cannot be taken away.
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
        // Others may have left them too little room with what they had before; and what is refused for good must not
        // keep that.
        for (name, _) in &refused {
            self.gate.pass()?;
            let _none = fs::removexattr(by_path, name.as_slice());
        }
        for (name, value) in refused {
            self.left.extended += u64::from(!self.set(by_path, name, value)?);
        }
        Ok(())
    }

    /// Whether the file takes it.
    fn set(&self, by_path: &Path, name: &[u8], value: &[u8]) -> Result<bool, Errno> {
        self.gate.pass()?;
        match fs::setxattr(by_path, name, value, XattrFlags::empty()) {
            // ext4 says so as well of what does not fit into one of its blocks.
            Err(Errno::NOSPC) if has_room(by_path) => Ok(false),
            Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(full),
            done => Ok(done.is_ok()),
        }
    }
}

/// Whether what has this name, and is no symlink, has an attribute besides those of the source that could be taken away.
pub(crate) fn has_more(node: &Node, at: BorrowedFd<'_>, name: &OsStr) -> bool {
    let path = by_path(at).join(name);
    // Most have none at all, or few.
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

/// Whether the file system has room for much more than an attribute.
fn has_room(path: &Path) -> bool {
    fs::statvfs(path).is_ok_and(|there| there.f_bavail > MIN_FREE && there.f_favail > MIN_FREE)
}

/// The only way to what is open as a path. A symlink that is open is not followed.
pub(crate) fn by_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Of its extended attributes; none where there is no such thing.
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
