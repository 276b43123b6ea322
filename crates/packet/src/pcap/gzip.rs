//! Unpacks gzip as it arrives: what a pipe has delivered is handed out before more is waited for,
//! and what came before damage before the damage is reported.

use std::io::{self, Read};

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::input_buffer::{InputBuffer, damage, distance};

/// The first bytes of a member of a file.
pub(super) const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Unpacks all members of a file, and skips zeros that pad it.
#[derive(Debug)]
pub(super) struct Gzip<R> {
    input: InputBuffer<R>,
    part: Part,
    inflate: Decompress,
    check: Crc,
}

/// What of a member comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Body,
    Check,
}

/// What became of the compressed bytes.
enum Step {
    Unpacked(usize),
    Next(Part),
    /// More of them are needed.
    More,
}

impl<R: Read> Gzip<R> {
    /// Continues a file whose first bytes have been read.
    pub(super) fn new(start: &[u8], input: R) -> Self {
        Self {
            input: InputBuffer::new(start, input),
            part: Part::Header,
            inflate: Decompress::new(false),
            check: Crc::new(),
        }
    }

    /// Reads at least one byte, unless it is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let step = match self.part {
                Part::Header => self.header()?,
                Part::Body => self.body(into)?,
                Part::Check => self.check()?,
            };
            match step {
                Step::Unpacked(bytes) => return Ok(bytes),
                Step::Next(part) => self.part = part,
                Step::More if self.refill()? => {}
                Step::More if self.part == Part::Header && self.input.bytes().is_empty() => {
                    return Ok(0);
                }
                Step::More => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    fn header(&mut self) -> io::Result<Step> {
        let zeros = self.input.bytes().iter().take_while(|byte| **byte == 0);
        self.input.consume(zeros.count());
        match header_length(self.input.bytes())? {
            Some(length) => self.input.consume(length),
            None => return Ok(Step::More),
        }
        self.inflate.reset(false);
        self.check.reset();
        Ok(Step::Next(Part::Body))
    }

    fn body(&mut self, into: &mut [u8]) -> io::Result<Step> {
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let packed = self.input.bytes();
        let status = self.inflate.decompress(packed, into, FlushDecompress::None);
        let used = distance(before.0, self.inflate.total_in());
        let came = distance(before.1, self.inflate.total_out());
        self.input.consume(used);
        self.check.update(&into[..came]);
        if matches!(status, Ok(Status::StreamEnd)) {
            self.part = Part::Check;
        }
        match status {
            _ if came > 0 => Ok(Step::Unpacked(came)),
            Err(_) => Err(damage("damaged compressed data")),
            Ok(Status::StreamEnd) => Ok(Step::Next(Part::Check)),
            Ok(_) if used > 0 => Ok(Step::Next(Part::Body)),
            Ok(_) => Ok(Step::More),
        }
    }

    fn check(&mut self) -> io::Result<Step> {
        let Some(&expected) = self.input.bytes().first_chunk::<8>() else {
            return Ok(Step::More);
        };
        let [sum, amount] = [self.check.sum(), self.check.amount()].map(u32::to_le_bytes);
        if expected[..4] != sum || expected[4..] != amount {
            return Err(damage("compressed data that disagrees with its checksum"));
        }
        self.input.consume(8);
        Ok(Step::Next(Part::Header))
    }

    /// Reads more compressed bytes; `false` at the end.
    fn refill(&mut self) -> io::Result<bool> {
        if self.input.is_full() {
            return Err(damage("a gzip header of impossible length"));
        }
        self.input.refill()
    }
}

/// The length of the header that starts here, once all of it is there. RFC 1952, section 2.3.
fn header_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(damage("something that is not gzip after what is"));
    }
    let Some([_, _, _, flags, ..]) = bytes.first_chunk::<10>() else {
        return Ok(None);
    };
    let has = |bit: u8| flags & 1 << bit != 0;
    let mut length = Some(10);
    if has(2) {
        length = length.and_then(|at| after_extra(bytes, at));
    }
    for string in [3, 4] {
        if has(string) {
            length = length.and_then(|at| after_string(bytes, at));
        }
    }
    if has(1) {
        length = length.map(|at| at + 2);
    }
    Ok(length.filter(|length| *length <= bytes.len()))
}

fn after_extra(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.first_chunk::<2>()?;
    Some(at + 2 + usize::from(u16::from_le_bytes(*length)))
}

fn after_string(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
    Some(at + length + 1)
}
