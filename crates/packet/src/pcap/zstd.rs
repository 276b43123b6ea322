//! Decompresses zstd as it arrives, block by block, so that the blocks before damage are delivered.

use std::fmt;
use std::io::{self, Read};

use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use super::input_buffer::{InputBuffer, damage};

/// The largest window, as a power of two: 128 MiB, which `zstd -d` accepts too. A file that was made by
/// `zstd --long=28` or more needs more memory and is refused.
const WINDOW_LOG: u32 = 27;

/// The bytes of a frame header from which its length is known.
const HEADER_PREFIX: usize = 5;

/// Decompresses all frames of a file, and skips its skippable frames.
pub(super) struct Zstd<R> {
    input: InputBuffer<R>,
    decoder: Decoder<'static>,
    /// How many bytes the decoder needs for its next step. With no more than these it decodes one block at a
    /// time: an error would otherwise discard the blocks before it.
    wanted: usize,
    /// Decoded bytes may wait in the decoder, because the last output had no room for more.
    waiting: bool,
    within_frame: bool,
}

impl<R: Read> Zstd<R> {
    /// Continues a file whose first bytes have been read.
    pub(super) fn new(start: &[u8], input: R) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self {
            input: InputBuffer::new(start, input),
            decoder,
            wanted: HEADER_PREFIX,
            waiting: false,
            within_frame: false,
        })
    }

    /// Reads at least one byte, unless it is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let packed = match self.waiting {
                true => &[],
                false => self.input.bytes(),
            };
            let packed = &packed[..self.wanted.min(packed.len())];
            let status = self.decoder.run_on_buffers(packed, into);
            let status = status.map_err(|error| explain(&error))?;
            let taken = status.bytes_read;
            self.input.consume(taken);
            self.waiting = status.bytes_written == into.len();
            if taken > 0 || status.bytes_written > 0 {
                self.within_frame = status.remaining > 0;
                self.wanted = match status.remaining {
                    0 => HEADER_PREFIX,
                    wanted => wanted,
                };
            }
            if status.bytes_written > 0 {
                return Ok(status.bytes_written);
            }
            if taken > 0 || !self.input.bytes().is_empty() || self.input.refill()? {
                continue;
            }
            return match self.within_frame {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(0),
            };
        }
    }
}

/// The decoder's own words, except where a user can do something.
fn explain(error: &io::Error) -> io::Error {
    let text = error.to_string();
    if text.contains("too much memory") {
        return io::Error::other(
            "needs a zstd window of more than 128 MiB: decompress it first (zstd -d --long=31)",
        );
    }
    if text.contains("Unknown frame descriptor") {
        return damage("something other than zstd after a zstd frame");
    }
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("damaged zstd data: {text}"),
    )
}

impl<R: fmt::Debug> fmt::Debug for Zstd<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd")
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}
