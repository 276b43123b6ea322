//! Whole frames that were read together, in one piece of memory that is used again.

use std::io;

use super::Frame;

/// Frames that were read together. It keeps its memory when it is filled again, and goes to another
/// thread as it is.
#[derive(Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    /// How many of the bytes were read from the file.
    filled: usize,
    pub(super) records: Vec<Record>,
}

/// A frame, and where its bytes lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) timestamp_ns: i64,
    pub(super) offset: usize,
    pub(super) length: u32,
    pub(super) original_length: u32,
    pub(super) link_type: u32,
}

impl Block {
    /// An empty block, to be filled by [`Reader::read_block`](super::Reader::read_block).
    pub fn new() -> Self {
        Self::default()
    }

    /// The frames in file order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame<'_>> + DoubleEndedIterator {
        self.records.iter().map(|record| self.frame(record))
    }

    /// The frame of this number, counted from 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Frame<'_>> {
        self.records.get(index).map(|record| self.frame(record))
    }

    /// How many frames there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    #[inline]
    fn frame(&self, record: &Record) -> Frame<'_> {
        let end = record.offset + record.length as usize;
        Frame {
            timestamp_ns: record.timestamp_ns,
            original_length: record.original_length,
            link_type: record.link_type,
            bytes: &self.bytes[record.offset..end],
        }
    }

    /// Forgets the frames, and starts with bytes that are left from an earlier block.
    pub(super) fn restart(&mut self, rest: &[u8]) {
        self.records.clear();
        self.reserve(rest.len());
        self.bytes[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// The bytes that were read.
    pub(super) fn read(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// The bytes that were read, and where their frames are noted.
    pub(super) fn parts(&mut self) -> (&[u8], &mut Vec<Record>) {
        (&self.bytes[..self.filled], &mut self.records)
    }

    /// Drops bytes at the start; there must be no frames yet.
    pub(super) fn discard(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }

    /// Reads more, with room for at least `wanted` bytes in all. Returns how many came, 0 at the
    /// end.
    pub(super) fn fill(
        &mut self,
        wanted: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.reserve(wanted);
        let space = &mut self.bytes[self.filled..];
        let came = read(space)?;
        self.filled += came;
        Ok(came)
    }

    /// Whether the last read could have brought more.
    pub(super) fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    fn reserve(&mut self, wanted: usize) {
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
    }
}
