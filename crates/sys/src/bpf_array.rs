//! A mapped BPF array, whose entries start with a number that userspace and programs share without a call.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use crate::mmap::Region;

/// An entry: a cache line, so that CPUs with entries side by side do not wait for each other.
pub const ENTRY: usize = 64;

/// A mapped array (`BPF_F_MMAPABLE`) whose entries have [`ENTRY`] bytes.
#[derive(Debug)]
pub struct BpfArray {
    region: Region,
    count: usize,
}

impl BpfArray {
    /// Maps an array of `count` entries, the size with which its map was created.
    ///
    /// # Errors
    /// It was made with fewer, or not to be mapped.
    pub fn new(map: impl AsFd, count: usize) -> io::Result<Self> {
        let region = Region::shared(map, count * ENTRY, 0)?;
        Ok(Self { region, count })
    }

    /// The first number of an entry, if there is such an entry.
    pub fn get(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: the entry lies in the mapping, which is aligned to a page and lives as long as
        // `self`; programs, too, read and write this number in one piece.
        (index < self.count)
            .then(|| unsafe { AtomicU64::from_ptr(self.region.as_ptr().add(index * ENTRY).cast()) })
    }
}
