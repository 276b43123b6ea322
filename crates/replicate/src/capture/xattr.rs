//! Reads extended attributes of the source's files, and waits for concurrent changes of them.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{getxattr, listxattr, removexattr};
use rustix::io::Errno;

use crate::record::Xattr;

/// More than the kernel returns.
const MAX_LIST: usize = 1 << 20;
/// An attribute name that only regular files and directories may have.
const NEVER: &str = "user.lowroad";

/// All extended attributes of an open file. `None` if the kernel does not list their names.
pub(super) fn read(descriptor: &OwnedFd) -> Result<Option<Vec<Xattr>>, Errno> {
    let path = path_of(descriptor);
    let names = match growing(|room| listxattr(&path, room)) {
        Err(Errno::TOOBIG) => {
            let called = std::fs::read_link(&path).unwrap_or_default();
            let called = called.display();
            tracing::warn!(
                "{called} has more names of extended attributes than the kernel tells: copies keep those that they have"
            );
            return Ok(None);
        }
        names => names?,
    };
    let mut all = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        match growing(|room| getxattr(&path, name, room)) {
            Ok(value) => all.push((name.to_vec(), value)),
            // The attribute was removed meanwhile, which is an event of its own.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    all.sort();
    Ok(Some(all))
}

/// Waits for a process that changes an open file under its lock. The file is neither regular nor a
/// directory. Its attributes are read without that lock, and only a change takes it. This change is
/// rejected, but the kernel finds that out only while it holds the lock.
pub(super) fn wait_for_lock(descriptor: &OwnedFd) {
    let _refused = removexattr(path_of(descriptor), NEVER);
}

/// The path through which the kernel finds a file that is open with `O_PATH`.
fn path_of(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Calls `read` with a buffer that grows until the result fits.
fn growing(
    mut read: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut room = vec![0; 4096];
    loop {
        match read(room.as_mut_slice()) {
            Ok(length) => {
                room.truncate(length);
                return Ok(room);
            }
            Err(Errno::RANGE) if room.len() < MAX_LIST => {
                room.resize(room.len() * 4, 0);
            }
            Err(errno) => return Err(errno),
        }
    }
}
