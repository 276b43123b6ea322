//! Structures that a BPF program and this side both know, and their bytes.

/// A structure of integers and arrays of them, without gaps: any bytes are one, and it is any bytes.
///
/// # Safety
/// The structure must be that. A BPF header says so by `_Static_assert`s on its size.
pub unsafe trait Plain: Copy {
    /// The structure in these bytes; none where they are not as many as it has.
    fn read(bytes: &[u8]) -> Option<Self> {
        match Self::split(bytes)? {
            (read, []) => Some(read),
            _ => None,
        }
    }

    /// The structure that these bytes start with, and the rest; none where they are too few.
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (start, rest) = bytes.split_at_checked(size_of::<Self>())?;
        // SAFETY: there are as many bytes, any of them make one, and no alignment is asked for.
        let read = unsafe { start.as_ptr().cast::<Self>().read_unaligned() };
        Some((read, rest))
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: it is so long, has no gaps, and lives as long as the slice.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}
