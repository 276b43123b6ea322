//! Files by what a file system calls them, whatever their names, and their pages as they are written
//! back.

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use libc::{
    SYNC_FILE_RANGE_WAIT_AFTER as WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE as WAIT_BEFORE,
    SYNC_FILE_RANGE_WRITE as WRITE,
};
use nix::fcntl::OFlag;

/// The kernel's limit for the length of a handle.
const MAX_HANDLE_SZ: usize = 128;

/// A file system's identifier of a file. It is valid for as long as the file exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    pub kind: i32,
    pub bytes: Vec<u8>,
}

/// The kernel's form of a handle.
#[repr(C)]
struct Raw {
    length: u32,
    kind: i32,
    bytes: [u8; MAX_HANDLE_SZ],
}

impl Handle {
    /// The handle of a name in a directory, which is not followed where it is a link; of the
    /// directory itself where the name is empty.
    pub fn of(directory: impl AsFd, name: &OsStr) -> io::Result<Self> {
        let mut raw = Raw {
            length: u32::try_from(MAX_HANDLE_SZ).map_err(io::Error::other)?,
            kind: 0,
            bytes: [0; MAX_HANDLE_SZ],
        };
        let path = CString::new(name.as_bytes())?;
        let mut mount = 0;
        // SAFETY: the path ends with NUL, and the handle has room for as many bytes as it says.
        let result = unsafe {
            libc::name_to_handle_at(
                directory.as_fd().as_raw_fd(),
                path.as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let length = usize::try_from(raw.length).map_err(io::Error::other)?;
        Ok(Self {
            kind: raw.kind,
            bytes: raw.bytes[..length.min(MAX_HANDLE_SZ)].to_vec(),
        })
    }

    /// Opens the file, on the file system that `on` belongs to. Needs `CAP_DAC_READ_SEARCH`;
    /// `ESTALE` means that the file no longer exists.
    pub fn open(&self, on: impl AsFd, flags: OFlag) -> io::Result<OwnedFd> {
        let mut raw = Raw {
            length: u32::try_from(self.bytes.len()).map_err(io::Error::other)?,
            kind: self.kind,
            bytes: [0; MAX_HANDLE_SZ],
        };
        let room = raw.bytes.get_mut(..self.bytes.len());
        room.ok_or(io::ErrorKind::InvalidInput)?
            .copy_from_slice(&self.bytes);
        // SAFETY: the handle is as long as it says.
        let descriptor = unsafe {
            libc::open_by_handle_at(
                on.as_fd().as_raw_fd(),
                (&raw mut raw).cast(),
                (flags | OFlag::O_CLOEXEC).bits(),
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made the descriptor, and it has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

/// `FS_IOC_GETFSUUID` of the kernel's `linux/fs.h`.
const GET_FILE_SYSTEM_UUID: libc::Ioctl = 0x8011_1500_u32 as libc::Ioctl;

/// The kernel's `struct fsuuid2`.
#[repr(C)]
struct Uuid {
    length: u8,
    bytes: [u8; 16],
}

/// The UUID of the file system that a file is on; none where it has none, or the kernel (before Linux 6.9) does not
/// tell.
pub fn file_system_uuid(of: impl AsFd) -> io::Result<Option<Vec<u8>>> {
    let mut uuid = Uuid {
        length: 0,
        bytes: [0; 16],
    };
    // SAFETY: the kernel writes one such structure.
    let result =
        unsafe { libc::ioctl(of.as_fd().as_raw_fd(), GET_FILE_SYSTEM_UUID, &raw mut uuid) };
    if result == 0 {
        let known = uuid.bytes.get(..usize::from(uuid.length));
        return Ok(known.filter(|bytes| !bytes.is_empty()).map(<[u8]>::to_vec));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Ok(None),
        _ => Err(error),
    }
}

/// Starts to write back what is dirty in the range, of what is being written back already the rest
/// first: a later store to a page of it is a first one again. That an earlier write back failed is for
/// those who wrote: also a direct write that met a mapped page leaves such an error.
pub fn clean(file: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    ignore_reported_errors(range(&file, offset, length, WAIT_BEFORE))?;
    range(&file, offset, length, WRITE)
}

/// As [`clean`], where data go through the file system's journal: what is dirty stays so until that is committed,
/// which this call does, and waits for. Errors as of [`write_back`].
pub fn clean_journalled(file: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    ignore_reported_errors(range(&file, offset, length, WAIT_BEFORE))?;
    // All of them in one call have it commit; each by itself does not.
    let all = WAIT_BEFORE | WRITE | WAIT_AFTER;
    ignore_reported_errors(range(&file, offset, length, all))
}

/// Writes back all that is dirty, and waits for it: the next store to any page is a first one. Errors as of
/// [`clean`].
pub fn write_back(file: impl AsFd) -> io::Result<()> {
    ignore_reported_errors(nix::unistd::fdatasync(file).map_err(io::Error::from))
}

/// A length that the kernel cannot represent means everything from `offset` on.
fn range(file: impl AsFd, offset: u64, length: u64, what: libc::c_uint) -> io::Result<()> {
    let offset = i64::try_from(offset).map_err(io::Error::other)?;
    let length = i64::try_from(length).unwrap_or(0);
    // SAFETY: the call reads and writes no memory of the process.
    let result = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, what) };
    (result == 0)
        .then_some(())
        .ok_or_else(io::Error::last_os_error)
}

/// Calls `sync_file_range` with a file, and with numbers that have it do nothing, for who watches calls.
pub fn mention(file: impl AsFd, offset: u64, length: u64) {
    let number = |value| i64::try_from(value).unwrap_or(0);
    // SAFETY: the call reads and writes no memory of the process.
    unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), number(offset), number(length), 0);
    }
}

/// Ignores the errors by which the kernel reports, once, that an earlier write back failed.
fn ignore_reported_errors(result: io::Result<()>) -> io::Result<()> {
    let once = |error: &io::Error| {
        let number = error.raw_os_error();
        matches!(number, Some(libc::EIO | libc::ENOSPC | libc::EDQUOT))
    };
    result.or_else(|error| once(&error).then_some(()).ok_or(error))
}

const _: () = assert!(size_of::<Uuid>() == 17);
const _: () = assert!(size_of::<Raw>() == 8 + MAX_HANDLE_SZ);
