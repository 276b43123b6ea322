//! Decompresses frames of lz4, a block of at most 4 MiB at a time.

use std::io::{self, Read};

use lz4_flex::frame::{Error, FrameDecoder};

use super::source::read_uninterrupted;

/// Decompresses all frames of a file.
#[derive(Debug)]
pub(super) struct Lz4<R: Read> {
    decoder: FrameDecoder<EndTracker<R>>,
    /// The last frame has ended, so that the file may end.
    between_frames: bool,
}

/// A file that tells how far it was read. The decoder returns no bytes both where a frame ends and where the
/// file breaks off.
#[derive(Debug)]
struct EndTracker<R> {
    start: Vec<u8>,
    input: R,
    taken: u64,
    at_end: bool,
}

impl<R: Read> Lz4<R> {
    /// Continues a file whose first bytes have been read.
    pub(super) fn new(start: &[u8], input: R) -> Self {
        let input = EndTracker {
            start: start.to_vec(),
            input,
            taken: 0,
            at_end: false,
        };
        Self {
            decoder: FrameDecoder::new(input),
            between_frames: true,
        }
    }

    /// Reads at least one byte, unless it is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let before = self.decoder.get_ref().taken;
            let came = self.decoder.read(into).map_err(explain)?;
            let file = self.decoder.get_ref();
            let is_whole = self.between_frames && file.taken == before;
            self.between_frames = came == 0;
            match came {
                0 if !file.at_end => {}
                0 if is_whole => return Ok(0),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                came => return Ok(came),
            }
        }
    }
}

impl<R: Read> Read for EndTracker<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let came = if self.start.is_empty() {
            read_uninterrupted(&mut self.input, into)?
        } else {
            let came = self.start.len().min(into.len());
            into[..came].copy_from_slice(&self.start[..came]);
            self.start.drain(..came);
            came
        };
        self.taken += came as u64;
        self.at_end = came == 0 && !into.is_empty();
        Ok(came)
    }
}

/// The decoder's own words, except for a file that ends too early.
fn explain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return error;
    }
    let known = error.get_ref().and_then(|inner| inner.downcast_ref());
    let what = match known {
        Some(Error::WrongMagicNumber) => "something other than lz4 after an lz4 frame",
        Some(Error::SkippableFrame(_)) => "a skippable lz4 frame, which is not supported",
        Some(Error::DictionaryNotSupported) => "an lz4 dictionary, which is not supported",
        Some(_) => "damaged lz4 data",
        None => return error,
    };
    io::Error::new(io::ErrorKind::InvalidData, what)
}
