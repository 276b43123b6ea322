//! The packets of every arm: a capture in memory, read or generated.

use std::path::Path;

use loadgen::mix;
use packet::pcap::{self, Block, ETHERNET, Reader, Writer};

use crate::Error;

/// A capture in memory, of one link type.
#[derive(Debug)]
pub struct Frames {
    /// In pcap.
    pub(super) capture: Vec<u8>,
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    pub(super) link_type: u32,
    /// Frames with another link type than the first one, which are left out.
    pub left_out: u64,
    /// A description of where they come from.
    pub from: String,
}

impl Frames {
    /// Generates conversations of many kinds, the same for the same seed.
    ///
    /// # Errors
    /// `packets` is 0.
    pub fn generate(packets: u32, seed: u64) -> Result<Self, Error> {
        let packets = usize::try_from(packets).unwrap_or(usize::MAX);
        let capture = mix::write(Vec::new(), packets, seed).map_err(Error::failed)?;
        let from = format!("made up, seed {seed}");
        Self::first(capture.as_slice(), u64::MAX, from).map_err(Error::Input)
    }

    /// Reads the first packets of a capture; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be read, is not a capture, or has no packets.
    pub fn read(path: &Path, most: u32) -> Result<Self, Error> {
        let file = path.display().to_string();
        let frames = pcap::open(path)
            .map_err(|error| error.to_string())
            .and_then(|input| Self::first(input, u64::from(most), file.clone()));
        frames.map_err(|what| Error::Input(format!("{file}: {what}")))
    }

    fn first(input: impl std::io::Read, most: u64, from: String) -> Result<Self, String> {
        let mut reader = Reader::new(input).map_err(|error| error.to_string())?;
        let mut block = Block::new();
        let mut copy: Option<Writer<Vec<u8>>> = None;
        let mut all = Self {
            capture: Vec::new(),
            packets: 0,
            bytes: 0,
            link_type: ETHERNET,
            left_out: 0,
            from,
        };
        while all.packets < most && reader.read_block(&mut block).map_err(|e| e.to_string())? {
            let left = usize::try_from(most - all.packets).unwrap_or(usize::MAX);
            for frame in block.frames().take(left) {
                let writer = match &mut copy {
                    Some(writer) => writer,
                    none => {
                        all.link_type = frame.link_type;
                        let writer = Writer::new(Vec::new(), frame.link_type);
                        none.insert(writer.map_err(|error| error.to_string())?)
                    }
                };
                if frame.link_type != all.link_type {
                    all.left_out += 1;
                    continue;
                }
                let length = frame.original_length;
                let written = writer.write_cut(frame.timestamp_ns, length, frame.bytes);
                written.map_err(|error| error.to_string())?;
                all.packets += 1;
                all.bytes += u64::from(length);
            }
        }
        let copy = copy.ok_or("has no packets")?;
        all.capture = copy.finish().map_err(|error| error.to_string())?;
        Ok(all)
    }
}
