//! The compressed bytes of a file, as the decoders take them.

use std::io::{self, Read};

use super::source::read_uninterrupted;

/// Size of the buffer. It holds more than any gzip header, and a block of zstd.
const BUFFER_LEN: usize = 128 << 10;

/// Compressed bytes that were read and are not decoded yet, and where more come from.
#[derive(Debug)]
pub(super) struct InputBuffer<R> {
    input: R,
    /// The bytes are those from `at` to `end`.
    buffer: Vec<u8>,
    at: usize,
    end: usize,
}

impl<R: Read> InputBuffer<R> {
    /// Continues a file whose first bytes have been read.
    pub(super) fn new(start: &[u8], input: R) -> Self {
        let mut buffer = vec![0; BUFFER_LEN];
        buffer[..start.len()].copy_from_slice(start);
        Self {
            input,
            buffer,
            at: 0,
            end: start.len(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.at = self.end.min(self.at + bytes);
    }

    /// Whether there is no room for more bytes.
    pub(super) fn is_full(&self) -> bool {
        self.end - self.at == BUFFER_LEN
    }

    /// Reads more bytes, once, if there is room; `false` at the end of the file.
    pub(super) fn refill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        let came = read_uninterrupted(&mut self.input, &mut self.buffer[self.end..])?;
        self.end += came;
        Ok(came > 0)
    }
}

/// The bytes between two totals of a decoder.
pub(super) fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to - from).unwrap_or(0)
}

/// The error for compressed data that cannot be decoded.
pub(super) fn damage(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
