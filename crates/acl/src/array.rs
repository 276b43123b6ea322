//! Flat memory whose address does not change while it grows: reserved at once, resident where
//! touched, in huge pages where the kernel grants them and the size makes them worth it.

use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use crate::error::Error;

/// Two megabytes: a huge page of x86-64 and of aarch64 with 4 KiB pages.
const HUGE: usize = 2 << 20;

/// Up to `capacity` elements, all bits zero until written.
#[derive(Debug)]
pub(crate) struct Array<T> {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    _elements: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process; access follows the borrow of the array.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

/// Types of which every bit pattern, zero too, is a value.
pub trait Plain: Copy {}
impl Plain for u64 {}

impl<T: Plain> Array<T> {
    /// Address space for `capacity` elements, and 64 bytes that may be read beyond them.
    pub(crate) fn reserve(capacity: usize) -> Result<Self, Error> {
        let bytes = (capacity * size_of::<T>() + 64).next_multiple_of(HUGE);
        let mapped = bytes + HUGE;
        // SAFETY: with no address asked for, the kernel picks one that is unused.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            let cause = io::Error::last_os_error();
            return Err(Error::Memory { bytes, cause });
        }
        let (Some(mapping), Some(start)) = (
            NonNull::new(mapping.cast::<u8>()),
            NonNull::new(mapping.map_addr(|at| at.next_multiple_of(HUGE)).cast::<T>()),
        ) else {
            let cause = io::Error::other("mapped at 0");
            return Err(Error::Memory { bytes, cause });
        };
        Ok(Self {
            mapping,
            mapped,
            start,
            len: 0,
            capacity,
            _elements: PhantomData,
        })
    }

    /// Asks for huge pages for what is touched from now on.
    pub(crate) fn prefer_huge(&self) {
        // SAFETY: the range is ours; advice changes no content.
        unsafe {
            libc::madvise(
                self.start.as_ptr().cast(),
                self.mapped - HUGE,
                libc::MADV_HUGEPAGE,
            );
        }
    }

    /// Appends `count` zeroed elements, up to eight of which share alignment; `None` when there is
    /// no room.
    pub(crate) fn extend(&mut self, count: usize) -> Option<usize> {
        let at = self.len.next_multiple_of(count.next_power_of_two().min(8));
        let end = at.checked_add(count).filter(|&end| end <= self.capacity)?;
        self.len = end;
        Some(at)
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `len` elements lie in the mapping, and each bit pattern is a value.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the array is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Array<T> {
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `reserve`; slices of it borrow the array.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}
