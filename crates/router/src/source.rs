//! A file as its content: unpacked, with its first bytes seen before it is read.

use std::fmt;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use bzip2_rs::DecoderReader;
use flate2::bufread::MultiGzDecoder;

/// Bytes looked at to tell formats apart.
const HEAD: usize = 8 << 10;
/// Bytes read at once.
const BLOCK: usize = 256 << 10;
/// What every stream of a bzip2 file begins with: "BZh", a digit, and the first block's magic.
const BZIP2: &[u8] = b"BZh";
const BLOCK_MAGIC: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];

/// Content whose beginning is known.
pub(crate) struct Source<'a> {
    head: Vec<u8>,
    rest: Box<dyn BufRead + 'a>,
}

impl<'a> Source<'a> {
    /// Unpacks gzip and bzip2, which are known by their first bytes.
    pub(crate) fn new(input: impl Read + 'a) -> io::Result<Self> {
        let mut input: Box<dyn BufRead + 'a> = Box::new(BufReader::with_capacity(BLOCK, input));
        let head = fill(&mut input, HEAD)?;
        let packed = Cursor::new(head).chain(input);
        let unpacked: Box<dyn Read + 'a> = match packed.get_ref().0.get_ref().as_slice() {
            [0x1f, 0x8b, 8, ..] => Box::new(MultiGzDecoder::new(packed)),
            head if head.starts_with(BZIP2) => Box::new(Bzip2::new(Box::new(packed))),
            _ => return Self::seen(Box::new(packed)),
        };
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

    fn seen(mut rest: Box<dyn BufRead + 'a>) -> io::Result<Self> {
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

/// Unpacks bzip2 of any number of streams, which parallel packers write; the decoder knows one.
struct Bzip2<'a> {
    stream: Option<DecoderReader<OneStream<'a>>>,
    rest: Shared<'a>,
}

type Shared<'a> = std::rc::Rc<std::cell::RefCell<Packed<'a>>>;

/// Packed bytes, of which those before the next stream may be read.
struct Packed<'a> {
    input: Box<dyn BufRead + 'a>,
    held: Vec<u8>,
    at: usize,
    /// Bytes of `held` that are this stream's for certain.
    own: usize,
    /// Whether `own` is where a stream begins.
    boundary: bool,
    /// Nothing of this stream has been read.
    fresh: bool,
}

struct OneStream<'a>(Shared<'a>);

impl<'a> Bzip2<'a> {
    fn new(input: Box<dyn BufRead + 'a>) -> Self {
        let packed = Packed {
            input,
            held: Vec::new(),
            at: 0,
            own: 0,
            boundary: false,
            fresh: true,
        };
        let rest = Shared::new(packed.into());
        let stream = Some(DecoderReader::new(OneStream(rest.clone())));
        Self { stream, rest }
    }
}

impl Read for Bzip2<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(stream) = &mut self.stream {
            let count = stream.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let more = self.rest.borrow_mut().next_stream()?;
            self.stream = more.then(|| DecoderReader::new(OneStream(self.rest.clone())));
        }
        Ok(0)
    }
}

impl Read for OneStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

/// Bytes of "BZh", a digit and a block's magic.
const SIGNATURE: usize = BZIP2.len() + 1 + BLOCK_MAGIC.len();

impl Packed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.own && !self.boundary {
            self.refill()?;
        }
        let count = buffer.len().min(self.own - self.at);
        buffer[..count].copy_from_slice(&self.held[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }

    /// Skips what a stream left, and whether another one follows.
    fn next_stream(&mut self) -> io::Result<bool> {
        loop {
            self.at = self.own;
            if self.boundary {
                self.boundary = false;
                self.fresh = true;
                return Ok(true);
            }
            self.refill()?;
            if self.own == self.at && !self.boundary {
                return Ok(false);
            }
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.held.drain(..self.at);
        self.at = 0;
        let wanted = BLOCK.max(self.held.len() + 1) - self.held.len();
        let mut input = (&mut self.input).take(wanted as u64);
        let read = input.read_to_end(&mut self.held)?;
        // The beginning of the stream that is being read is not the next one's.
        let from = usize::from(std::mem::take(&mut self.fresh)).min(self.held.len());
        let found = self.held[from..].windows(SIGNATURE).position(begins_stream);
        self.boundary = found.is_some();
        self.own = match found {
            Some(at) => at + from,
            None if read == 0 => self.held.len(),
            // A signature may have been read in part.
            None => self.held.len().saturating_sub(SIGNATURE - 1).max(from),
        };
        Ok(())
    }
}

fn begins_stream(bytes: &[u8]) -> bool {
    bytes[0] == BZIP2[0] && bytes.starts_with(BZIP2) && bytes[4..] == BLOCK_MAGIC
}
