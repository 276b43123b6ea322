//! Capture files: classic pcap and pcapng, read in either byte order, written as nanosecond pcap.
//!
//! It decides where a frame starts and when it was seen; frames themselves it leaves alone.

mod classic;
mod ng;
mod write;

use std::io::{self, Read};

pub use write::{NANOSECOND_MAGIC, Writer};

/// The link type of Ethernet frames.
pub const ETHERNET: u32 = 1;
/// No frame is longer; a length beyond it is a broken file, not a request for memory.
const LONGEST: usize = 1 << 20;

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Since the epoch; 0 in a pcapng simple packet, which has no time.
    pub timestamp_ns: u64,
    /// Bytes it had on the wire, where the capture cut it to a snapshot length.
    pub original_length: u32,
    /// Of the interface it was seen on.
    pub link_type: u32,
    pub frame: Vec<u8>,
}

/// Why a capture cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("not a pcap or pcapng file")]
    Format,
    #[error("cut off after {packets} packets")]
    Truncated { packets: u64 },
    #[error("after {packets} packets: {what}")]
    Broken { packets: u64, what: &'static str },
    #[error("after {packets} packets: {cause}")]
    Io { packets: u64, cause: io::Error },
}

/// Frames in file order. After an error it ends.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    ended: bool,
}

#[derive(Debug)]
enum Format {
    Classic(classic::Header),
    Ng(ng::Section),
}

impl<R: Read> Reader<R> {
    /// Reads the file's header. Wrap files in a `BufReader`.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut input = Input { input, packets: 0 };
        let magic = input.array().map_err(|error| match error {
            Error::Truncated { .. } => Error::Format,
            other => other,
        })?;
        let format = if magic == ng::SECTION {
            Format::Ng(ng::Section::read(&mut input)?)
        } else {
            let kind = classic::Kind::of(magic).ok_or(Error::Format)?;
            Format::Classic(classic::Header::read(kind, &mut input)?)
        };
        Ok(Self {
            input,
            format,
            ended: false,
        })
    }

    /// The file's link type and snapshot length; of pcapng's first interface, once it was read.
    pub fn link(&self) -> Option<(u32, u32)> {
        match &self.format {
            Format::Classic(header) => Some((header.link_type, header.snapshot)),
            Format::Ng(section) => section.first_link(),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Captured, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match &mut self.format {
            Format::Classic(header) => header.next(&mut self.input),
            Format::Ng(section) => section.next(&mut self.input),
        };
        match &next {
            Ok(Some(_)) => self.input.packets += 1,
            Ok(None) | Err(_) => self.ended = true,
        }
        next.transpose()
    }
}

/// The byte order a file was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        self.u32(crate::bytes::array(bytes, at))
    }

    fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        self.u16(crate::bytes::array(bytes, at))
    }
}

/// Reads exact lengths and remembers how many packets came before.
#[derive(Debug)]
struct Input<R> {
    input: R,
    packets: u64,
}

impl<R: Read> Input<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// As [`Input::array`], or `None` at the end of the file.
    fn array_or_end<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Error> {
        let mut bytes = [0; N];
        let first = loop {
            match self.input.read(&mut bytes[..1]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|source| self.failed(source))?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.fill(&mut bytes[1..])?;
        Ok(Some(bytes))
    }

    fn vec(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        if length > LONGEST {
            return Err(self.broken("a length beyond any frame's"));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.input
            .read_exact(bytes)
            .map_err(|source| self.failed(source))
    }

    fn failed(&self, cause: io::Error) -> Error {
        let packets = self.packets;
        match cause.kind() {
            io::ErrorKind::UnexpectedEof => Error::Truncated { packets },
            _ => Error::Io { packets, cause },
        }
    }

    fn broken(&self, what: &'static str) -> Error {
        Error::Broken {
            packets: self.packets,
            what,
        }
    }
}
