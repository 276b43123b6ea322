//! Capture files: classic pcap and pcapng, read in either byte order, as they are or compressed by
//! gzip, zstd, xz or lz4; written as nanosecond pcap.
//!
//! It decides where a frame starts and when it was seen; frames themselves it leaves alone.

mod block;
mod classic;
mod gzip;
mod input_buffer;
mod lz4;
mod ng;
mod reader;
mod source;
mod write;
mod xz;
mod zstd;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use block::Block;
pub use reader::Reader;
pub use write::{NANOSECOND_MAGIC, Writer, record};

/// The link type of Ethernet frames.
pub const ETHERNET: u32 = 1;
/// The longest frame. A greater length means that the file is damaged, and requests no memory.
const MAX_FRAME_LEN: u32 = 1 << 20;

/// Opens a capture file, or standard input for `-`.
///
/// # Errors
/// The file cannot be opened, or is a folder.
pub fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("is a folder"));
    }
    Ok(Box::new(file))
}

/// A captured frame, borrowed from whoever holds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Since the epoch; 0 in a pcapng simple packet, which has no time. A time beyond what this
    /// counts is the last, or the first, that it can.
    pub timestamp_ns: i64,
    /// Bytes it had on the wire, where the capture cut it to a snapshot length: what the file
    /// says, which may be wrong.
    pub original_length: u32,
    /// Of the interface it was seen on.
    pub link_type: u32,
    /// What was captured of it.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Bytes on the wire: at least those that were captured, whatever the file says.
    pub fn wire_length(&self) -> u64 {
        let captured = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        u64::from(self.original_length).max(captured)
    }
}

/// A captured frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFrame {
    /// As in [`Frame`].
    pub timestamp_ns: i64,
    /// As in [`Frame`].
    pub original_length: u32,
    /// As in [`Frame`].
    pub link_type: u32,
    /// What was captured of it.
    pub frame: Vec<u8>,
}

impl OwnedFrame {
    /// The frame, borrowed.
    pub fn as_frame(&self) -> Frame<'_> {
        Frame {
            timestamp_ns: self.timestamp_ns,
            original_length: self.original_length,
            link_type: self.link_type,
            bytes: &self.frame,
        }
    }
}

impl From<Frame<'_>> for OwnedFrame {
    fn from(frame: Frame<'_>) -> Self {
        Self {
            timestamp_ns: frame.timestamp_ns,
            original_length: frame.original_length,
            link_type: frame.link_type,
            frame: frame.bytes.to_vec(),
        }
    }
}

/// Why a capture cannot be read further: after how many packets, and at which byte the record or
/// block starts that was being read. Bytes of a compressed file are those it unpacks to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("{0}")]
    Open(io::Error),
    /// The first bytes are no capture's.
    #[error("not a pcap or pcapng file")]
    Format,
    /// A compression that is not supported, or a second one, and the program that undoes it.
    #[error("compressed: decompress it first ({program} -dc FILE | lowroad ... -)")]
    Compressed { program: &'static str },
    /// The file ends within a record.
    #[error("cut off after {packets} packets, in the record at byte {offset}")]
    Truncated { packets: u64, offset: u64 },
    /// A record contradicts itself or what came before.
    #[error("after {packets} packets, at byte {offset}: {what}")]
    Broken {
        packets: u64,
        offset: u64,
        what: &'static str,
    },
    /// The file cannot be read, or not be decompressed.
    #[error("after {packets} packets, at byte {offset}: {cause}")]
    Io {
        packets: u64,
        offset: u64,
        cause: io::Error,
    },
}

/// What lies at a place of a file.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A whole record with a frame, whose place counts from the record's start.
    Frame(block::Record, usize),
    /// So many bytes without one, which need not all be there.
    Skip(usize),
    /// A record that takes at least so many bytes, of which some are missing.
    Wait(usize),
}

/// Why a record cannot be understood.
type Fault = &'static str;

const TOO_LONG: Fault = "a length beyond any frame's";

/// A file's records, one after the other.
trait Layout {
    /// What the bytes that start here are.
    fn step(&mut self, bytes: &[u8]) -> Result<Step, Fault>;
}

/// The byte order a file was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    #[inline]
    fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = crate::bytes::array(bytes, at);
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    #[inline]
    fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = crate::bytes::array(bytes, at);
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    fn i64_at(self, bytes: &[u8], at: usize) -> i64 {
        let bytes = crate::bytes::array(bytes, at);
        match self {
            Self::Big => i64::from_be_bytes(bytes),
            Self::Little => i64::from_le_bytes(bytes),
        }
    }
}
