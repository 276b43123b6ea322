//! Flat memory whose address does not change while it grows: reserved at once, resident where
//! touched, in huge pages where the kernel grants them and the size makes them worth it.

use std::marker::PhantomData;
use std::slice;

use sys::huge::{Region, Zeroable};

use crate::error::Error;

/// Bytes that may be read beyond the last element.
const PADDING: usize = 64;

/// Up to `capacity` elements, all bits zero until written.
#[derive(Debug)]
pub(crate) struct Array<T> {
    region: Region,
    len: usize,
    capacity: usize,
    _elements: PhantomData<T>,
}

impl<T> Array<T> {
    /// Address space for `capacity` elements, and 64 bytes that may be read beyond them.
    pub(crate) fn reserve(capacity: usize) -> Result<Self, Error> {
        let size = size_of::<T>();
        let region = Region::new(capacity, size, PADDING).map_err(|cause| Error::Memory {
            bytes: capacity.saturating_mul(size),
            cause,
        })?;
        Ok(Self {
            region,
            len: 0,
            capacity,
            _elements: PhantomData,
        })
    }

    /// Asks for huge pages for what is touched from now on.
    pub(crate) fn prefer_huge(&self) {
        self.region.prefer_huge();
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const T {
        self.region.start().as_ptr().cast()
    }

    pub(crate) fn is_half_full(&self) -> bool {
        self.len > self.capacity / 2
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T: Zeroable + Copy> Array<T> {
    /// Appends `count` zeroed elements, up to eight of which share alignment; `None` when there is
    /// no room.
    pub(crate) fn extend(&mut self, count: usize) -> Option<usize> {
        let at = self.len.next_multiple_of(count.next_power_of_two().min(8));
        let end = at.checked_add(count).filter(|&end| end <= self.capacity)?;
        self.len = end;
        Some(at)
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `len` elements lie in the region, aligned to 2 MiB, and zero is a value of `T`.
        unsafe { slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the array is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.region.start().as_ptr().cast(), self.len) }
    }
}
