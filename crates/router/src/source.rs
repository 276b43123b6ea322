//! A file as its content: unpacked, with its first bytes seen before it is read.

use std::fmt;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;

use crate::budget::{Budget, Counter, Unpacker};
use crate::error::{Fault, Place};

/// Bytes looked at to tell formats apart.
const HEAD: usize = 8 << 10;
/// Bytes read at once.
const BLOCK: usize = 256 << 10;

/// What files begin with that other programs unpack, and one that does it.
const FOREIGN: [(&[u8], &str, &str); 4] = [
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd -dc"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
];

/// Content whose beginning is known.
pub(crate) struct Source<'a> {
    head: Vec<u8>,
    rest: Box<dyn BufRead + 'a>,
}

impl<'a> Source<'a> {
    /// Unpacks gzip and bzip2, which are known by their first bytes, of any number of streams.
    ///
    /// # Errors
    /// Reading, or content of another packer.
    pub(crate) fn new(input: impl Read + 'a, budget: &'a Budget) -> Result<Self, Fault> {
        let counted = Counter::new(input, budget);
        let mut input: Box<dyn BufRead + 'a> = Box::new(BufReader::with_capacity(BLOCK, counted));
        let head = fill(&mut input, HEAD)?;
        if let Some(refusal) = foreign(&head) {
            return Err(Fault::new(Place::File, refusal));
        }
        let packed = Cursor::new(head).chain(input);
        let unpacked: Box<dyn Read + 'a> = match packed.get_ref().0.get_ref().as_slice() {
            [0x1f, 0x8b, 8, ..] => Box::new(MultiGzDecoder::new(packed)),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Box::new(MultiBzDecoder::new(packed)),
            _ => return Self::seen(Box::new(packed)),
        };
        let unpacked = Unpacker::new(unpacked, budget);
        Self::seen(Box::new(BufReader::with_capacity(BLOCK, unpacked)))
    }

    /// The first bytes, fewer than [`HEAD`] only when there are no more.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Everything from the beginning.
    pub(crate) fn content(self) -> Chain<Cursor<Vec<u8>>, Box<dyn BufRead + 'a>> {
        Cursor::new(self.head).chain(self.rest)
    }

    fn seen(mut rest: Box<dyn BufRead + 'a>) -> Result<Self, Fault> {
        let head = fill(&mut rest, HEAD)?;
        Ok(Self { head, rest })
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

fn fill(input: &mut impl BufRead, most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(most);
    input.take(most as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn foreign(head: &[u8]) -> Option<String> {
    let (_, packer, program) = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic))?;
    Some(format!(
        "packed by {packer}, where gzip and bzip2 are read: give the output of `{program}` as standard input"
    ))
}
