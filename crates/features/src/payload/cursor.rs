//! Reads in network order from the front of a slice; what is not there is `None`.

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

    /// A number of one, two, four or eight bytes, as its first two bits say (RFC 9000, 16).
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let more = (1_usize << (first >> 6)) - 1;
        let bytes = self.take(more)?;
        let push = |number, byte: &u8| number << 8 | u64::from(*byte);
        Some(bytes.iter().fold(u64::from(first & 0x3f), push))
    }

    /// What a length of one byte announces.
    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// What a length of two bytes announces.
    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

/// Numbers of two bytes, one after the other; an odd byte at the end is no number.
pub(super) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|pair| u16::from_be_bytes(*pair))
}
