//! Decompresses xz as it arrives, with a limit to the dictionary.

use std::fmt;
use std::io::{self, Read};

use liblzma::stream::{Action, CONCATENATED, Error, Status, Stream};

use super::input_buffer::{InputBuffer, damage, distance};

/// The memory of the decoder. `xz -9` makes files that need 65 MiB; a header can ask for 4 GiB.
const MEMORY: u64 = 130 << 20;

/// Decompresses all streams of a file, and skips the zeros between them.
pub(super) struct Xz<R> {
    input: InputBuffer<R>,
    stream: Stream,
    /// The file has ended, which the decoder has to know.
    at_end: bool,
    done: bool,
}

impl<R: Read> Xz<R> {
    /// Continues a file whose first bytes have been read.
    pub(super) fn new(start: &[u8], input: R) -> io::Result<Self> {
        let stream = Stream::new_stream_decoder(MEMORY, CONCATENATED);
        Ok(Self {
            input: InputBuffer::new(start, input),
            stream: stream.map_err(explain)?,
            at_end: false,
            done: false,
        })
    }

    /// Reads at least one byte, unless it is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.done {
            let action = if self.at_end {
                Action::Finish
            } else {
                Action::Run
            };
            let before = (self.stream.total_in(), self.stream.total_out());
            let status = self.stream.process(self.input.bytes(), into, action);
            let used = distance(before.0, self.stream.total_in());
            let came = distance(before.1, self.stream.total_out());
            self.input.consume(used);
            self.done = matches!(status, Ok(Status::StreamEnd));
            // The decoder reports an error again if it is asked again.
            if came > 0 {
                return Ok(came);
            }
            match status.map_err(explain)? {
                Status::MemNeeded if self.at_end => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                _ if self.input.bytes().is_empty() && !self.at_end => {
                    self.at_end = !self.input.refill()?;
                }
                _ => {}
            }
        }
        Ok(0)
    }
}

fn explain(error: Error) -> io::Error {
    match error {
        Error::MemLimit => io::Error::other(
            "needs more than 130 MiB for its xz dictionary: decompress it first (xz -d)",
        ),
        Error::Mem => io::ErrorKind::OutOfMemory.into(),
        Error::Options | Error::UnsupportedCheck => damage("an xz feature that is not supported"),
        _ => damage("damaged xz data"),
    }
}

impl<R: fmt::Debug> fmt::Debug for Xz<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xz")
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}
