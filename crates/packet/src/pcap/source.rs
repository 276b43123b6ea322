//! Where a capture's bytes come from: a file as it is, or one that is unpacked on the way.

use std::io::{self, Read};

use super::Error;
use super::gzip::{self, Gzip};

#[derive(Debug)]
pub(super) enum Source<R> {
    Plain(R),
    Packed(Box<Gzip<R>>),
}

impl<R: Read> Source<R> {
    /// Finds out whether the file is compressed. Returns its first four bytes too, unpacked; fewer
    /// when there are no more.
    pub(super) fn new(input: R) -> Result<(Self, Vec<u8>), Error> {
        let mut source = Self::Plain(input);
        let mut start = Vec::new();
        source.extend(&mut start, 4)?;
        if start.starts_with(&gzip::MAGIC) {
            source = source.unpacked(&start);
            start.clear();
            source.extend(&mut start, 4)?;
        }
        match packed_by(&start) {
            Some(program) => Err(Error::Compressed { program }),
            None => Ok((source, start)),
        }
    }

    fn unpacked(self, start: &[u8]) -> Self {
        match self {
            Self::Plain(input) => Self::Packed(Box::new(Gzip::new(start, input))),
            packed @ Self::Packed(_) => packed,
        }
    }

    /// Reads on until the start has so many bytes, or the file ends.
    pub(super) fn extend(&mut self, start: &mut Vec<u8>, wanted: usize) -> Result<(), Error> {
        let mut filled = start.len();
        start.resize(wanted, 0);
        while filled < wanted {
            match self.read(&mut start[filled..]) {
                Ok(0) => break,
                Ok(came) => filled += came,
                Err(cause) => return Err(failed(cause, 0, 0)),
            }
        }
        start.truncate(filled);
        Ok(())
    }

    /// Reads what there is; 0 bytes at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => read_uninterrupted(input, into),
            Self::Packed(input) => input.read(into),
        }
    }
}

/// Reads once; a signal does not count.
pub(super) fn read_uninterrupted(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|came| came.min(into.len())),
        }
    }
}

/// A compressed file that ends too early is cut off like any other.
pub(super) fn failed(cause: io::Error, packets: u64, offset: u64) -> Error {
    if cause.kind() == io::ErrorKind::UnexpectedEof {
        return Error::Truncated { packets, offset };
    }
    Error::Io {
        packets,
        offset,
        cause,
    }
}

/// The program that unpacks a file that starts so.
fn packed_by(start: &[u8]) -> Option<&'static str> {
    match start.get(..4)? {
        [0x1f, 0x8b, 8, _] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
        [0xfd, b'7', b'z', b'X'] => Some("xz"),
        [b'B', b'Z', b'h', _] => Some("bzip2"),
        [0x04, 0x22, 0x4d, 0x18] => Some("lz4"),
        _ => None,
    }
}
