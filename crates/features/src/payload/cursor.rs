//! Reads from the front of a slice in network byte order. Reading beyond the end returns `None`.

/// The bytes not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// A variable-length integer of one, two, four or eight bytes (RFC 9000, 16).
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let more = (1_usize << (first >> 6)) - 1;
        let bytes = self.take(more)?;
        let push = |number, byte: &u8| number << 8 | u64::from(*byte);
        Some(bytes.iter().fold(u64::from(first & 0x3f), push))
    }

    /// The bytes after a length of one byte.
    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// The bytes after a length of two bytes.
    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

/// The two-byte numbers in a slice. An odd byte at the end is ignored.
pub(super) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|pair| u16::from_be_bytes(*pair))
}
