//! Structures that a BPF program and this side both know, and their bytes.

use std::ptr;

use libbpf_rs::libbpf_sys;

/// A structure of integers and arrays of them, without gaps: any bytes are a value, and every value
/// has initialised bytes.
///
/// [`build`](crate::build) implements it for those structures of a skeleton that type information
/// shows to be plain. A structure that it leaves out has implicit padding, a `bool` or a pointer.
///
/// # Safety
/// The type must be such a structure.
pub unsafe trait Plain: Copy {
    /// The structure in these bytes; `None` where their number is not its size.
    fn read(bytes: &[u8]) -> Option<Self> {
        match Self::split(bytes)? {
            (read, []) => Some(read),
            _ => None,
        }
    }

    /// The structure that these bytes start with, and the rest; `None` where there are too few.
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (start, rest) = bytes.split_at_checked(size_of::<Self>())?;
        // SAFETY: there are as many bytes, any of them make a value, and no alignment is needed.
        let read = unsafe { start.as_ptr().cast::<Self>().read_unaligned() };
        Some((read, rest))
    }

    /// A value of zeros on the heap, for structures that are too large for a stack.
    fn zeroed() -> Box<Self> {
        let mut zeroed = Box::new_uninit();
        // SAFETY: there is room for one value, and zeros are one.
        unsafe {
            ptr::write_bytes(zeroed.as_mut_ptr(), 0, 1);
            zeroed.assume_init()
        }
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        bytes_of(std::slice::from_ref(self))
    }
}

/// The bytes of values that lie one after the other.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: the values have no gaps, are as long as said, and live as long as the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

// SAFETY: integers have no gaps, and any bytes are one.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: elements of an array have no gaps between them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: an index and a union of two integers of 4 bytes each.
unsafe impl Plain for libbpf_sys::bpf_devmap_val {}
// SAFETY: a length and a union of two integers of 4 bytes each.
unsafe impl Plain for libbpf_sys::bpf_cpumap_val {}
// SAFETY: six integers of 4 bytes each.
unsafe impl Plain for libbpf_sys::xdp_md {}
