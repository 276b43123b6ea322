//! A file's bytes stored through shared memory, which no system call sees.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::mmap::Region;
use crate::uring;

/// A shared, writable mapping of a file whose pages come when they are touched. It hands out no
/// address: threads may store through it while others store or write from it.
///
/// Bytes of pages that the file no longer reaches end the process with `SIGBUS`, as for any program.
#[derive(Debug)]
pub struct FileMapping(Region);

impl FileMapping {
    /// Maps `len` bytes from `offset` on, a multiple of the page size. The descriptor may be closed afterwards.
    pub fn new(file: impl AsFd, len: usize, offset: u64) -> io::Result<Self> {
        Region::untouched(file, len, offset).map(Self)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stores `bytes` at byte `at`.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len()), "outside the map");
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the mapping, which lives as long as `self`; every access of this
            // process is atomic or the kernel's.
            let target = unsafe { AtomicU8::from_ptr(self.0.as_ptr().add(at + index)) };
            target.store(*byte, Ordering::Relaxed);
        }
    }

    /// Writes bytes of the mapping to `file` at `offset`; returns how many. Other threads may store
    /// into them meanwhile.
    ///
    /// # Panics
    /// When the range is not inside the mapping.
    pub fn write_to(&self, range: Range<usize>, file: impl AsFd, offset: u64) -> io::Result<usize> {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "outside the map"
        );
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel reads inside the mapping; a page that is gone is its EFAULT.
        let written = unsafe {
            libc::pwrite(
                file.as_fd().as_raw_fd(),
                self.0.as_ptr().add(range.start).cast(),
                range.len(),
                offset,
            )
        };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    /// A hole in the file where this range of it is mapped: `madvise(MADV_REMOVE)`, which a ring is asked for.
    pub fn remove_by_ring(&self, range: Range<usize>) -> io::Result<()> {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "outside the map"
        );
        let length = u32::try_from(range.len()).map_err(io::Error::other)?;
        // SAFETY: the range is within the mapping, and no reference to mapped bytes exists.
        unsafe { uring::remove_pages(self.0.as_ptr().add(range.start).cast(), length) }
    }

    /// `msync(MS_SYNC)`.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly the mapped range.
        let done = unsafe { libc::msync(self.0.as_ptr().cast(), self.len(), libc::MS_SYNC) };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_stored_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![1; 8192]).unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let map = FileMapping::new(&file, 4096, 4096).unwrap();
        map.store(4090, b"stored");
        map.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap()[8186..], *b"stored");
        assert_eq!(map.write_to(4090..4096, &file, 10).unwrap(), 6);
        drop(map);
        assert_eq!(fs::read(&path).unwrap()[9..17], *b"\x01stored\x01");
    }

    #[test]
    #[should_panic(expected = "outside the map")]
    fn a_store_outside_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        FileMapping::new(&file, 4096, 0).unwrap().store(4095, b"ab");
    }
}
