//! What tests of captures share: input that comes in pieces, and a file read in every way there is.

use std::io::{self, Read};

use packet::pcap::{Block, Error, OwnedFrame, Reader};

/// Bytes that arrive in reads of these lengths, over and over.
pub(crate) struct Pieces<'a> {
    bytes: &'a [u8],
    lengths: &'a [usize],
    next: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(bytes: &'a [u8], lengths: &'a [usize]) -> Self {
        Self {
            bytes,
            lengths,
            next: 0,
        }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        assert!(!into.is_empty(), "nothing can be read into no space");
        assert!(into.len() <= 3 << 20, "{} bytes are too many", into.len());
        let length = self.lengths[self.next % self.lengths.len()];
        self.next += 1;
        let length = length.min(into.len());
        self.bytes.read(&mut into[..length])
    }
}

/// The frames before the end, and the error that made it.
pub(crate) type Whole = (Vec<OwnedFrame>, Option<String>);

/// What a file holds; every way to read it, and every way for it to arrive, must agree.
pub(crate) fn read_every_way(file: &[u8]) -> Whole {
    let whole = read(file, singly);
    assert_eq!(read(file, iterated), whole);
    for between in [0, 2] {
        assert_eq!(read(file, |r, f| in_blocks(r, f, between)), whole);
    }
    for lengths in [&[1][..], &[7, 1, 30], &[4096, 3], &[100_000]] {
        let pieces = || Pieces::new(file, lengths);
        assert_eq!(read(pieces(), singly), whole, "{lengths:?}");
        let in_blocks = read(pieces(), |r, f| in_blocks(r, f, 1));
        assert_eq!(in_blocks, whole, "{lengths:?}");
    }
    whole
}

/// Reads a file in one way; after its end it must stay there.
pub(crate) fn read<R: Read>(
    input: R,
    way: impl FnOnce(&mut Reader<R>, &mut Vec<OwnedFrame>) -> Result<(), Error>,
) -> Whole {
    let mut frames = Vec::new();
    let error = Reader::new(input).and_then(|mut reader| {
        let end = way(&mut reader, &mut frames);
        assert!(matches!(reader.read(), Ok(None)), "one end");
        assert!(matches!(reader.read_block(&mut Block::new()), Ok(false)));
        assert!(reader.next().is_none());
        end
    });
    (frames, error.err().map(|error| error.to_string()))
}

pub(crate) fn singly<R: Read>(
    reader: &mut Reader<R>,
    frames: &mut Vec<OwnedFrame>,
) -> Result<(), Error> {
    while let Some(frame) = reader.read()? {
        frames.push(frame.into());
    }
    Ok(())
}

fn iterated<R: Read>(reader: &mut Reader<R>, frames: &mut Vec<OwnedFrame>) -> Result<(), Error> {
    for captured in reader {
        frames.push(captured?);
    }
    Ok(())
}

/// Blocks, with so many single frames between them.
fn in_blocks<R: Read>(
    reader: &mut Reader<R>,
    frames: &mut Vec<OwnedFrame>,
    between: usize,
) -> Result<(), Error> {
    let mut block = Block::new();
    while reader.read_block(&mut block)? {
        assert!(!block.is_empty() && block.len() == block.frames().len());
        frames.extend(block.frames().map(OwnedFrame::from));
        for _ in 0..between {
            frames.extend(reader.read()?.map(OwnedFrame::from));
        }
    }
    assert!(block.is_empty(), "no frames are left from before the end");
    Ok(())
}
