//! Bytes of a record, read from front to back.

/// A record that does not fit the format: the offset in the record, and the reason.
#[derive(Debug)]
pub(super) struct RecordError {
    pub(super) at: usize,
    pub(super) what: String,
}

#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes that are not read yet.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], RecordError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err(self.error(&format!("{what} goes beyond what holds it")));
        };
        self.bytes = rest;
        self.at += count;
        Ok(taken)
    }

    /// The next bytes as something to read by themselves.
    pub(super) fn part(&mut self, count: usize, what: &str) -> Result<Self, RecordError> {
        let at = self.at;
        let bytes = self.take(count, what)?;
        Ok(Self { bytes, at })
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], RecordError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, RecordError> {
        Ok(u8::from_be_bytes(self.array(what)?))
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, RecordError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    pub(super) fn error(&self, what: &str) -> RecordError {
        RecordError {
            at: self.at,
            what: what.to_owned(),
        }
    }
}
