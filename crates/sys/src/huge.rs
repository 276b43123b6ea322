//! Large zeroed tables: address space that becomes memory where it is first touched, in transparent
//! huge pages where the system grants them.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// One transparent huge page of x86-64 and of aarch64 with 4 KiB pages.
const HUGE: usize = 2 << 20;

/// The pages that an array asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// 4 KiB: little memory for arrays that are touched here and there.
    Ordinary,
    /// 2 MiB where the system grants them: few misses of the TLB.
    Huge,
}

/// What all-zero bytes are a value of.
///
/// # Safety
/// They are, and nothing needs to be done when such a value goes.
pub unsafe trait Zeroed {}

// SAFETY: an integer.
unsafe impl Zeroed for u64 {}

// SAFETY: an integer.
unsafe impl Zeroed for AtomicU8 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU16 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU64 {}

/// Zeroed address space that begins at a multiple of 2 MiB and becomes memory page by page.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// Longer by one huge page, so that the beginning can be chosen.
    mapping: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process, and a region gives its address only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Address space for `len` elements of `size` bytes and at least `beyond` bytes after them.
    ///
    /// # Errors
    /// When the process may not have so much address space.
    pub fn new(len: usize, size: usize, beyond: usize) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size)
            .and_then(|all| all.checked_add(beyond));
        let bytes = bytes
            .and_then(|all| all.checked_next_multiple_of(HUGE))
            .filter(|bytes| *bytes < isize::MAX as usize - HUGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = bytes + HUGE;
        // SAFETY: with no address asked for, the kernel picks one that is unused.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = mapping.cast::<u8>();
        // SAFETY: less than one huge page further, and the mapping is one longer than `bytes`.
        let start = unsafe { mapping.add(mapping.align_offset(HUGE)) };
        let none = || io::Error::other("mapped at 0");
        Ok(Self {
            start: NonNull::new(start).ok_or_else(none)?,
            bytes,
            mapping: NonNull::new(mapping).ok_or_else(none)?,
        })
    }

    /// Asks for huge pages for what is touched from now on. A kernel without them refuses, and ordinary
    /// ones do.
    pub fn prefer_huge(&self) {
        // SAFETY: the range is ours; the advice changes no content.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }

    /// The first byte, at a multiple of 2 MiB.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes of address space, whether touched or not.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `new`; what refers to it goes with it.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.bytes + HUGE) };
    }
}

/// `len` zeroed elements, the first at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Array<T> {
    start: NonNull<T>,
    len: usize,
    region: Region,
    holds: PhantomData<T>,
}

// SAFETY: the array owns its region; it is as good to send as its elements.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: it hands out shared references only.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T: Zeroed> Array<T> {
    /// Reserves the address space; memory is taken page by page when first written.
    ///
    /// # Errors
    /// When the process may not have so much address space.
    pub fn new(len: usize, backing: Backing) -> io::Result<Self> {
        let region = Region::new(len, size_of::<T>(), 0)?;
        if backing == Backing::Huge {
            region.prefer_huge();
        }
        Ok(Self {
            start: region.start().cast(),
            len,
            region,
            holds: PhantomData,
        })
    }

    /// Bytes of address space, whether touched or not.
    pub fn reserved(&self) -> usize {
        self.region.bytes()
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements lie in the region, aligned to 2 MiB, and zero is a value of `T`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn reads_as_zero_and_keeps_what_is_written() {
        let array = Array::<AtomicU16>::new(3_000_001, Backing::Ordinary).unwrap();
        assert_eq!(array.len(), 3_000_001);
        assert_eq!(array.as_ptr().align_offset(HUGE), 0);
        array[3_000_000].store(7, Ordering::Relaxed);
        assert_eq!(array[3_000_000].load(Ordering::Relaxed), 7);
        assert_eq!(array[2_999_999].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn takes_no_memory_for_what_is_not_touched() {
        let array = Array::<AtomicU64>::new(1 << 33, Backing::Huge).unwrap();
        array[(1 << 33) - 1].store(1, Ordering::Relaxed);
        assert!(array.reserved() >= 1 << 36);
    }

    #[test]
    fn refuses_more_than_there_is() {
        assert!(Array::<AtomicU64>::new(usize::MAX / 2, Backing::Huge).is_err());
    }
}
