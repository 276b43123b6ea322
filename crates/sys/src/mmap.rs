//! Memory mapped from the kernel or from a file descriptor, unmapped on drop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// The kind of pages of an anonymous region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Ordinary,
    /// Reserved huge pages; `ENOMEM` when the system has none.
    Huge,
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A readable and, but for `read_only`, writable mapping. It hands out addresses, not slices: whoever shares it with the
/// kernel says which bytes are whose.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Region` gives no access by
// itself.
unsafe impl Send for Region {}
// SAFETY: as above; all methods only read `start` and `len`.
unsafe impl Sync for Region {}

impl Region {
    /// Private zeroed memory of `len` bytes, populated.
    pub fn anonymous(len: usize, pages: Pages) -> io::Result<Self> {
        let huge = match pages {
            Pages::Ordinary => 0,
            Pages::Huge => libc::MAP_HUGETLB,
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge;
        Self::map(len, WRITABLE, flags | libc::MAP_POPULATE, None, 0)
    }

    /// `len` bytes of what `fd` offers at `offset`, shared.
    pub fn shared(fd: impl AsFd, len: usize, offset: u64) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map(len, WRITABLE, flags, Some(fd.as_fd()), offset)
    }

    /// As `shared`, but no page is touched yet: populating a file's mapping makes all of it dirty.
    pub(crate) fn untouched(fd: impl AsFd, len: usize, offset: u64) -> io::Result<Self> {
        Self::map(len, WRITABLE, libc::MAP_SHARED, Some(fd.as_fd()), offset)
    }

    /// As `shared`, of what may only be read: a write through its address is a fault.
    pub fn read_only(fd: impl AsFd, len: usize, offset: u64) -> io::Result<Self> {
        Self::map(
            len,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            Some(fd.as_fd()),
            offset,
        )
    }

    fn map(
        len: usize,
        protection: libc::c_int,
        flags: libc::c_int,
        fd: Option<BorrowedFd<'_>>,
        offset: u64,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: with no address asked for, the kernel picks one that is unused.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, len })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `map`, and no address of it is used after the drop:
        // its users hold the region beside their pointers.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
