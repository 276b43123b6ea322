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
/// The type holds plain integers only: no padding, no reference, no invariant.
pub unsafe trait Zeroed {}

// SAFETY: an integer.
unsafe impl Zeroed for AtomicU8 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU16 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU64 {}

/// `len` zeroed elements, the first at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Array<T> {
    start: NonNull<T>,
    len: usize,
    mapping: Mapping,
    holds: PhantomData<T>,
}

// SAFETY: the array owns its mapping; it is as good to send as its elements.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: it hands out shared references only.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T: Zeroed> Array<T> {
    /// Reserves the address space; memory is taken page by page when first written.
    ///
    /// # Errors
    /// When the process may not have so much address space.
    pub fn new(len: usize, backing: Backing) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::new(bytes.next_multiple_of(HUGE) + HUGE)?;
        let base = mapping.start.as_ptr();
        // SAFETY: less than one huge page further, and the mapping is one longer than `bytes`.
        let start = unsafe { base.add(base.align_offset(HUGE)) };
        if backing == Backing::Huge {
            // SAFETY: within the mapping; the advice changes no content. A kernel without huge
            // pages refuses it, and ordinary ones do.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            len,
            mapping,
            holds: PhantomData,
        })
    }

    /// Bytes of address space, whether touched or not.
    pub fn reserved(&self) -> usize {
        self.mapping.len
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements lie in the mapping, aligned to 2 MiB, and zero is a value of `T`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: with no address asked for, the kernel picks one that is unused.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `new`; the array that refers to it goes with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
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
