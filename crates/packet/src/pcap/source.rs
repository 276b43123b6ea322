//! Where a capture's bytes come from: a file as it is, or one that is decompressed on the way.

use std::io::{self, Read};

use super::Error;
use super::gzip::{self, Gzip};
use super::lz4::Lz4;
use super::xz::Xz;
use super::zstd::Zstd;

/// Decompression takes a limited amount of memory, whatever a file says and however much it expands to.
#[derive(Debug)]
pub(super) enum Source<R: Read> {
    Plain(R),
    Gzip(Box<Gzip<R>>),
    Zstd(Box<Zstd<R>>),
    Xz(Box<Xz<R>>),
    Lz4(Box<Lz4<R>>),
}

/// A compression, known by the first four bytes of a file.
#[derive(Clone, Copy, Debug)]
enum Compression {
    Gzip,
    Zstd,
    Xz,
    Lz4,
    Bzip2,
}

impl<R: Read> Source<R> {
    /// Finds out whether the file is compressed. Returns its first four bytes too, decompressed; fewer when
    /// there are no more.
    pub(super) fn new(input: R) -> Result<(Self, Vec<u8>), Error> {
        let mut plain = Self::Plain(input);
        let mut start = Vec::new();
        plain.extend(&mut start, 4)?;
        let Some(compression) = Compression::of(&start) else {
            return Ok((plain, start));
        };
        let mut source = plain.decompressed(compression, &start)?;
        start.clear();
        source.extend(&mut start, 4)?;
        match Compression::of(&start) {
            Some(again) => Err(again.refusal()),
            None => Ok((source, start)),
        }
    }

    fn decompressed(self, compression: Compression, start: &[u8]) -> Result<Self, Error> {
        let Self::Plain(input) = self else {
            return Err(compression.refusal());
        };
        let fail = |cause| failed(cause, 0, 0);
        Ok(match compression {
            Compression::Gzip => Self::Gzip(Box::new(Gzip::new(start, input))),
            Compression::Zstd => Self::Zstd(Box::new(Zstd::new(start, input).map_err(fail)?)),
            Compression::Xz => Self::Xz(Box::new(Xz::new(start, input).map_err(fail)?)),
            Compression::Lz4 => Self::Lz4(Box::new(Lz4::new(start, input))),
            Compression::Bzip2 => return Err(compression.refusal()),
        })
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
            Self::Gzip(input) => input.read(into),
            Self::Zstd(input) => input.read(into),
            Self::Xz(input) => input.read(into),
            Self::Lz4(input) => input.read(into),
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

impl Compression {
    /// The compression of a file that starts so.
    fn of(start: &[u8]) -> Option<Self> {
        match start.get(..4)? {
            [a, b, c, _] if [*a, *b, *c] == gzip::MAGIC => Some(Self::Gzip),
            // pzstd begins a file with a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X'] => Some(Self::Xz),
            [0x04, 0x22, 0x4d, 0x18] => Some(Self::Lz4),
            [b'B', b'Z', b'h', _] => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// The error that names the program which decompresses such a file.
    fn refusal(self) -> Error {
        let program = match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Bzip2 => "bzip2",
        };
        Error::Compressed { program }
    }
}
