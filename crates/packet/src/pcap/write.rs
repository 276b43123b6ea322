//! Writes nanosecond classic pcap, which every analyser reads.

use std::io::{self, Write};

/// The first four bytes of a little-endian nanosecond capture.
pub const NANOSECOND_MAGIC: [u8; 4] = [0x4d, 0x3c, 0xb2, 0xa1];

/// Longer frames are cut to this.
const SNAPSHOT: u32 = 262_144;

/// A capture in the making.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. Wrap files in a `BufWriter`.
    pub fn new(mut output: W, link_type: u32) -> io::Result<Self> {
        output.write_all(&NANOSECOND_MAGIC)?;
        output.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        output.write_all(&SNAPSHOT.to_le_bytes())?;
        output.write_all(&link_type.to_le_bytes())?;
        Ok(Self { output })
    }

    /// Adds a frame that was seen whole at `timestamp_ns` since the epoch; what the file cannot
    /// count becomes its first or last time.
    pub fn write(&mut self, timestamp_ns: i64, frame: &[u8]) -> io::Result<()> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        self.write_cut(timestamp_ns, length, frame)
    }

    /// Adds a frame of which the capture holds the first bytes.
    pub fn write_cut(
        &mut self,
        timestamp_ns: i64,
        original_length: u32,
        frame: &[u8],
    ) -> io::Result<()> {
        let (header, kept) = record(timestamp_ns, original_length, frame);
        self.output.write_all(&header)?;
        self.output.write_all(kept)
    }

    /// Flushes and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// The header of a frame's record, and as much of the frame as comes after it.
pub fn record(timestamp_ns: i64, original_length: u32, frame: &[u8]) -> ([u8; 16], &[u8]) {
    let [seconds, fraction] = split(timestamp_ns);
    let length = u32::try_from(frame.len()).unwrap_or(SNAPSHOT).min(SNAPSHOT);
    let kept = usize::try_from(length).unwrap_or(frame.len());
    let mut header = [0; 16];
    let words = [seconds, fraction, length, original_length];
    for (to, word) in header.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    (header, &frame[..kept.min(frame.len())])
}

/// Seconds and the nanoseconds beyond them, as near as a file can count.
fn split(timestamp_ns: i64) -> [u32; 2] {
    const SECOND: u64 = 1_000_000_000;
    let since = u64::try_from(timestamp_ns).unwrap_or(0);
    match u32::try_from(since / SECOND) {
        Ok(seconds) => [seconds, u32::try_from(since % SECOND).unwrap_or(0)],
        Err(_) => [u32::MAX, 999_999_999],
    }
}
