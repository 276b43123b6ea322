//! File operations through `io_uring`, which pass no system call of their own: each waits for its end.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::opcode::{Fallocate, RenameAt, SetXattr, UnlinkAt, Write};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

/// The task of the kernel that carries out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// The submitter, if it need not wait.
    Inline,
    /// A worker.
    Worker,
    /// The thread that polls the submission queue.
    Polled,
}

/// Writes at `offset`; returns how many bytes.
pub fn write(
    file: impl AsFd,
    bytes: &[u8],
    offset: u64,
    submission: Submission,
) -> io::Result<usize> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let file = Fd(file.as_fd().as_raw_fd());
    let entry = Write::new(file, bytes.as_ptr(), len).offset(offset).build();
    // SAFETY: descriptor and bytes are borrowed until the operation has ended.
    let written = unsafe { carry_out(entry, submission) }?;
    usize::try_from(written).map_err(io::Error::other)
}

/// `fallocate` with its mode.
pub fn fallocate(file: impl AsFd, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    let file = Fd(file.as_fd().as_raw_fd());
    let entry = Fallocate::new(file, len).offset(offset).mode(mode).build();
    // SAFETY: the descriptor is borrowed until the operation has ended.
    unsafe { carry_out(entry, Submission::Inline) }.map(drop)
}

/// `madvise(MADV_REMOVE)`: a hole in the file that is mapped there.
///
/// # Safety
/// The whole range is a mapping of a file, and no reference to its bytes exists.
pub(crate) unsafe fn remove_pages(address: *const u8, length: u32) -> io::Result<()> {
    let advice = libc::MADV_REMOVE;
    let entry = opcode::Madvise::new(address.cast(), length.into(), advice).build();
    // SAFETY: it reads no memory of the caller's.
    unsafe { carry_out(entry, Submission::Inline) }.map(drop)
}

/// Writes the file's data and attributes to the disk.
pub fn fsync(file: impl AsFd) -> io::Result<()> {
    let entry = opcode::Fsync::new(Fd(file.as_fd().as_raw_fd())).build();
    // SAFETY: the descriptor is borrowed until the operation has ended.
    unsafe { carry_out(entry, Submission::Inline) }.map(drop)
}

/// `rename`, by absolute paths or from the working directory.
pub fn rename(from: &CStr, to: &CStr) -> io::Result<()> {
    let here = Fd(libc::AT_FDCWD);
    let entry = RenameAt::new(here, from.as_ptr(), here, to.as_ptr()).build();
    // SAFETY: both paths are borrowed until the operation has ended.
    unsafe { carry_out(entry, Submission::Inline) }.map(drop)
}

/// Sets an extended attribute of what an absolute path, or one from the working directory, leads to.
pub fn set_attribute(path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
    let len = u32::try_from(value.len()).map_err(io::Error::other)?;
    let entry = SetXattr::new(name.as_ptr(), value.as_ptr().cast(), path.as_ptr(), len).build();
    // SAFETY: path, name and value are borrowed until the operation has ended.
    unsafe { carry_out(entry, Submission::Inline) }.map(drop)
}

/// `unlink`, by absolute path or from the working directory.
pub fn unlink(path: &CStr) -> io::Result<()> {
    let entry = UnlinkAt::new(Fd(libc::AT_FDCWD), path.as_ptr()).build();
    // SAFETY: the path is borrowed until the operation has ended.
    unsafe { carry_out(entry, Submission::Inline) }.map(drop)
}

/// # Safety
/// The memory and files that the entry names must stay until this returns.
unsafe fn carry_out(entry: Entry, submission: Submission) -> io::Result<i32> {
    let mut ring = match submission {
        Submission::Polled => IoUring::builder().setup_sqpoll(100).build(2)?,
        Submission::Inline | Submission::Worker => IoUring::new(2)?,
    };
    let flags = match submission {
        Submission::Worker => Flags::ASYNC,
        Submission::Inline | Submission::Polled => Flags::empty(),
    };
    // SAFETY: the caller keeps what the entry names, and this does not return before its end.
    unsafe { ring.submission().push(&entry.flags(flags)) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The poller sees the entry whether or not it could be waited for.
            Err(_) if submission == Submission::Polled => {}
            // Refused as a whole: nothing was taken from the queue.
            Err(error) => return Err(error),
        }
        if let Some(ended) = ring.completion().next() {
            let result = ended.result();
            return if result < 0 {
                Err(io::Error::from_raw_os_error(-result))
            } else {
                Ok(result)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Kernels may have it switched off.
    fn absent<T>(result: &io::Result<T>) -> bool {
        let absent = matches!(result, Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)));
        if absent {
            crate::require::skip(crate::require::Class::Hardware, "io_uring is switched off");
        }
        absent
    }

    #[test]
    fn operations_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        let file = fs::File::create_new(&a).unwrap();
        let ways = [Submission::Inline, Submission::Worker, Submission::Polled];
        for (way, at) in ways.into_iter().zip([0, 3, 6]) {
            let result = write(&file, b"abc", at, way);
            if absent(&result) {
                return;
            }
            assert_eq!(result.unwrap(), 3, "{way:?}");
        }
        fallocate(&file, 0, 0, 12).unwrap();
        fsync(&file).unwrap();
        let [from, to] = [&a, &b].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
        rename(&from, &to).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"abcabcabc\0\0\0");
        let nowhere = set_attribute(&from, c"user.x", b"value");
        assert_eq!(nowhere.unwrap_err().kind(), io::ErrorKind::NotFound);
        unlink(&to).unwrap();
        assert_eq!(unlink(&to).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
