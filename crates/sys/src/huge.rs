//! Large zeroed tables: address space that becomes memory where it is first touched, in transparent
//! huge pages where the system grants them, or what a file descriptor offers to all who map it.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
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

/// Types for which all-zero bytes are a value.
///
/// # Safety
/// They are, and nothing needs to be done when such a value goes.
pub unsafe trait Zeroable {}

// SAFETY: an integer.
unsafe impl Zeroable for u64 {}

// SAFETY: an integer.
unsafe impl Zeroable for AtomicU8 {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU16 {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU64 {}

/// Integers that others, BPF programs among them, may write at any time, each at once. Any bytes are
/// a value.
///
/// # Safety
/// It is an atomic integer.
pub unsafe trait Shared: Zeroable {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU8 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU16 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU64 {}

/// Memory for an array: the process's own or shared, from its first page on.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    mapping: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, and a region gives its address only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed address space for `len` elements of `size` bytes and at least `beyond` bytes after them,
    /// which begins at a multiple of 2 MiB and becomes memory page by page.
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
        // Longer by one huge page, so that the beginning can be chosen.
        let mapped = bytes + HUGE;
        let mapping = map(mapped, flags, -1)?;
        // SAFETY: less than one huge page further, and the mapping is one longer than `bytes`.
        let start = unsafe { mapping.add(mapping.align_offset(HUGE)) };
        Ok(Self {
            start,
            bytes,
            mapping,
            mapped,
        })
    }

    /// The first `bytes` of what `fd` offers to be mapped and written (a BPF array made with
    /// `BPF_F_MMAPABLE`, a memfd), shared with all who use it. It must not become shorter.
    ///
    /// # Errors
    /// When it cannot be mapped, or is shorter as far as the kernel can tell.
    pub fn shared(fd: impl AsFd, bytes: usize) -> io::Result<Self> {
        let start = map(bytes, libc::MAP_SHARED, fd.as_fd().as_raw_fd())?;
        Ok(Self {
            start,
            bytes,
            mapping: start,
            mapped: bytes,
        })
    }

    /// Asks for huge pages for what is touched from now on. A kernel without them refuses, and ordinary
    /// ones do.
    pub fn prefer_huge(&self) {
        // SAFETY: the range is ours; the advice changes no content.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }

    /// The first byte, at a multiple of 2 MiB or, of shared memory, of a page.
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
        // SAFETY: this range was mapped by `map`; what refers to it goes with it.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

fn map(bytes: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: with no address asked for, the kernel picks one that is unused.
    let mapping = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if mapping == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapping.cast()).ok_or_else(|| io::Error::other("mapped at 0"))
}

/// `len` elements at the start of a region, zeroed unless others have written to it.
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

impl<T: Zeroable> Array<T> {
    /// Reserves the address space; memory is taken page by page when first written.
    ///
    /// # Errors
    /// When the process may not have so much address space.
    pub fn new(len: usize, backing: Backing) -> io::Result<Self> {
        let region = Region::new(len, size_of::<T>(), 0)?;
        if backing == Backing::Huge {
            region.prefer_huge();
        }
        Ok(Self::of(region, len))
    }

    fn of(region: Region, len: usize) -> Self {
        Self {
            start: region.start().cast(),
            len,
            region,
            holds: PhantomData,
        }
    }

    /// Bytes of address space, whether touched or not.
    pub fn reserved(&self) -> usize {
        self.region.bytes()
    }
}

impl<T: Shared> Array<T> {
    /// An array in memory that the caller provides.
    ///
    /// # Errors
    /// When it is too short.
    pub fn within(region: Region, len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>());
        if bytes.is_none_or(|bytes| bytes > region.bytes()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} bytes are too few", region.bytes()),
            ));
        }
        Ok(Self::of(region, len))
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements lie in the region, aligned to a page. Zero is a value of `T`, and where
        // others write, `T` is an atomic integer, of which all bytes are one.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd};
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
    fn shares_what_a_file_descriptor_offers() {
        // SAFETY: the name is terminated; the descriptor is new and has no other owner.
        let memory = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"array".as_ptr(), 0)) };
        let memory = File::from(memory);
        memory.set_len(8192).unwrap();
        let array = || Array::<AtomicU32>::within(Region::shared(&memory, 8192).unwrap(), 2048);
        let (one, other) = (array().unwrap(), array().unwrap());
        one[2047].store(7, Ordering::Relaxed);
        assert_eq!(other[2047].load(Ordering::Relaxed), 7);
        let short = Region::shared(&memory, 8188).unwrap();
        assert!(Array::<AtomicU32>::within(short, 2048).is_err());
    }

    #[test]
    fn refuses_more_than_there_is() {
        assert!(Array::<AtomicU64>::new(usize::MAX / 2, Backing::Huge).is_err());
    }
}
