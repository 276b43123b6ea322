//! Reads a capture block by block; single frames come from a block that the reader keeps.
//!
//! A file's bytes are read into the block that will be handed out, so that nothing is copied but
//! the record at its end that is not whole yet.

use std::io::Read;
use std::mem;

use super::block::{Block, Record};
use super::source::{self, Source};
use super::{Error, Fault, Frame, Layout, OwnedFrame, Step, classic, ng};

/// Size of the first read. It doubles while reads are full, so that neither a small file nor a pipe takes
/// much memory.
const MIN_READ: usize = 16 << 10;
/// Maximum size of a read: some thousand frames, so that system calls and hand-overs to other threads do not
/// matter.
const MAX_READ: usize = 1 << 20;

/// Frames in file order, from anything that can be read: it needs no `BufReader`, and hands out
/// every frame that a slow pipe has delivered before it waits for more. gzip, zstd, xz and lz4 are
/// decompressed on the way, by at most 132 MiB of memory. After an error it ends.
#[derive(Debug)]
pub struct Reader<R: Read> {
    source: Source<R>,
    format: Format,
    /// Bytes that were read and belong to no block yet.
    rest: Vec<u8>,
    /// What [`Reader::read`] has not handed out yet starts at `next`.
    ahead: Block,
    next: usize,
    /// Bytes asked for at once.
    ask: usize,
    progress: Progress,
}

#[derive(Debug)]
enum Format {
    Classic(classic::Header),
    Ng(ng::Section),
}

/// How far the file was understood.
#[derive(Debug, Default)]
struct Progress {
    packets: u64,
    /// Where in the file the record starts that is being read.
    offset: u64,
    /// Where in the file the bytes start that no block has yet.
    read: u64,
    /// Bytes of the record that are to be skipped, and were not read yet.
    skip: usize,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the file's header.
    pub fn new(input: R) -> Result<Self, Error> {
        let (mut source, mut rest) = Source::new(input)?;
        let mut progress = Progress::default();
        let magic = *rest.first_chunk().ok_or(Error::Format)?;
        let format = if magic == ng::SECTION {
            // What is left of its header is read as a block like the others.
            Format::Ng(ng::Section::new())
        } else {
            let kind = classic::Kind::of(magic).ok_or(Error::Format)?;
            source.extend(&mut rest, kind.header)?;
            if rest.len() < kind.header {
                return Err(progress.truncated());
            }
            progress.read = kind.header as u64;
            Format::Classic(classic::Header::new(kind, &mem::take(&mut rest)))
        };
        Ok(Self {
            source,
            format,
            rest,
            ahead: Block::new(),
            next: 0,
            ask: MIN_READ,
            progress,
        })
    }

    /// The file's link type and snapshot length; of pcapng's first interface, once it was read.
    pub fn link(&self) -> Option<(u32, u32)> {
        match &self.format {
            Format::Classic(header) => Some((header.link_type, header.snapshot)),
            Format::Ng(section) => section.first_link(),
        }
    }

    /// The next frame, or `None` at the end.
    #[inline]
    pub fn read(&mut self) -> Result<Option<Frame<'_>>, Error> {
        if self.next == self.ahead.len() && !self.read_ahead()? {
            return Ok(None);
        }
        self.next += 1;
        Ok(self.ahead.get(self.next - 1))
    }

    /// Replaces a block's content by the next frames: as many as one read of the file brings, which
    /// comes to be 1 MiB, or what a pipe has. Returns whether there were any.
    pub fn read_block(&mut self, into: &mut Block) -> Result<bool, Error> {
        if self.next == self.ahead.len() {
            return self.fill(into);
        }
        mem::swap(&mut self.ahead, into);
        into.records.drain(..self.next);
        self.ahead.restart(&[]);
        self.next = 0;
        Ok(true)
    }

    fn read_ahead(&mut self) -> Result<bool, Error> {
        let mut ahead = mem::take(&mut self.ahead);
        let filled = self.fill(&mut ahead);
        (self.ahead, self.next) = (ahead, 0);
        filled
    }

    fn fill(&mut self, block: &mut Block) -> Result<bool, Error> {
        block.restart(&self.rest);
        self.rest.clear();
        while !self.progress.ended {
            let (used, wanted) = self.index(block);
            if !block.is_empty() {
                self.rest.extend_from_slice(&block.read()[used..]);
                return Ok(true);
            }
            block.discard(used);
            let more = self.more(block, wanted);
            self.progress.ended = !matches!(more, Ok(true));
            more?;
        }
        Ok(false)
    }

    /// Finds the whole records among a block's bytes. Returns how many bytes are done with, and how
    /// many the next record wants.
    fn index(&mut self, block: &mut Block) -> (usize, Result<usize, Fault>) {
        match &mut self.format {
            Format::Classic(header) => self.progress.index(header, block),
            Format::Ng(section) => self.progress.index(section, block),
        }
    }

    /// Reads on after whole records; `false` at the end.
    fn more(&mut self, block: &mut Block, wanted: Result<usize, Fault>) -> Result<bool, Error> {
        let progress = &self.progress;
        let wanted = wanted.map_err(|what| progress.broken(what))?;
        let came = block
            .fill(wanted.max(self.ask), |space| self.source.read(space))
            .map_err(|cause| source::failed(cause, progress.packets, progress.offset))?;
        if block.is_full() {
            self.ask = MAX_READ.min(2 * self.ask);
        }
        match (came, progress.skip, block.read()) {
            (0, 0, []) => Ok(false),
            (0, ..) => Err(progress.truncated()),
            _ => Ok(true),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<OwnedFrame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read()
            .map(|frame| frame.map(OwnedFrame::from))
            .transpose()
    }
}

impl Progress {
    fn index(
        &mut self,
        layout: &mut impl Layout,
        block: &mut Block,
    ) -> (usize, Result<usize, Fault>) {
        let (bytes, records) = block.parts();
        let mut at = self.skip;
        let mut wanted = Ok(0);
        while let Some(rest) = bytes.get(at..) {
            self.offset = self.read + at as u64;
            match layout.step(rest) {
                Ok(Step::Frame(record, size)) => {
                    let offset = at + record.offset;
                    records.push(Record { offset, ..record });
                    at += size;
                }
                Ok(Step::Skip(size)) => at += size,
                Ok(Step::Wait(size)) => {
                    wanted = Ok(size);
                    break;
                }
                Err(what) => {
                    wanted = Err(what);
                    break;
                }
            }
        }
        let used = at.min(bytes.len());
        self.skip = at - used;
        self.read += used as u64;
        self.packets += records.len() as u64;
        (used, wanted)
    }

    fn truncated(&self) -> Error {
        Error::Truncated {
            packets: self.packets,
            offset: self.offset,
        }
    }

    fn broken(&self, what: Fault) -> Error {
        Error::Broken {
            packets: self.packets,
            offset: self.offset,
            what,
        }
    }
}
