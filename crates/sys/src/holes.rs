//! Finds data and holes in a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek64};

use crate::kernel::Release;

/// Before Linux 6.2, btrfs does not find data on its way to the disk behind two stretches of a hole that it
/// lists separately (`find_delalloc_subrange` in `fs/btrfs/file.c`).
static BTRFS_OVERLOOKS_DATA: LazyLock<bool> =
    LazyLock::new(|| Release::running().is_ok_and(|release| !release.at_least(6, 2)));

/// The next data of a file from an offset on, both in bytes; none where a hole is all that is left.
///
/// # Errors
/// `EINVAL` or `EOPNOTSUPP` where the file system knows of no holes.
pub fn next_data(file: impl AsFd, at: u64) -> io::Result<Option<u64>> {
    let file = file.as_fd();
    let first = seek(file, at, Whence::SeekData)?;
    if first == Some(at) {
        return Ok(first);
    }
    if may_overlook_data(file)? {
        sync_extents(file)?;
    }
    // Data that moves from memory to the disk at this moment may be found in neither (`ext4_iomap_begin_report`
    // before Linux 6.9 looks at one after the other): one of two looks finds it.
    let second = seek(file, at, Whence::SeekData)?;
    Ok([first, second].into_iter().flatten().min())
}

/// The next hole of a file from an offset on, both in bytes, where the end of the file is one; none at and
/// behind that, and where ext4 does not say where the data in an inode ends.
///
/// # Errors
/// The errors of [`next_data`].
pub fn next_hole(file: impl AsFd, at: u64) -> io::Result<Option<u64>> {
    Ok(seek(file.as_fd(), at, Whence::SeekHole)?)
}

fn seek(file: BorrowedFd<'_>, at: u64, whence: Whence) -> Result<Option<u64>, Errno> {
    let at = i64::try_from(at).map_err(|_| Errno::EOVERFLOW)?;
    match lseek64(file, at, whence) {
        Ok(found) => Ok(u64::try_from(found).ok()),
        // ext4 says so of a file that has its data in its inode, behind that data.
        Err(Errno::ENXIO | Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether data may be taken for a hole. What an overlay has a file on, it does not say.
fn may_overlook_data(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    if !*BTRFS_OVERLOOKS_DATA {
        return Ok(false);
    }
    let format = fstatfs(file)?.filesystem_type();
    Ok([BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC].contains(&format))
}

/// `struct fiemap`, that asks for nothing.
#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
const FIEMAP_FLAG_SYNC: u32 = 1;

/// Waits until what was written to the file is where the file system looks for it. Nothing is said to the
/// disk's own cache.
fn sync_extents(file: BorrowedFd<'_>) -> io::Result<()> {
    let mut map = Fiemap {
        length: 1,
        flags: FIEMAP_FLAG_SYNC,
        ..Fiemap::default()
    };
    // SAFETY: the request has no room for extents, and says so; it outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &raw mut map) };
    match Errno::result(result) {
        // An overlay on a file system that has no such map, which is not the one that overlooks.
        Ok(_) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_lies_between_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(&[1], 1 << 20).unwrap();
        sync_extents(file.as_fd()).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), Some(1 << 20));
        let hole = next_hole(&file, 1 << 20).unwrap().unwrap();
        assert!(hole > 1 << 20 && hole <= 2 << 20, "{hole}");
        assert_eq!(next_hole(&file, 0).unwrap(), Some(0));
        assert_eq!(next_data(&file, hole).unwrap(), None);
        assert_eq!(next_hole(&file, 3 << 20).unwrap(), None);
    }
}
