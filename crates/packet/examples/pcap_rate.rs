//! Prints how fast the frames of a capture are read: one by one, in blocks, and as owned frames.
//! `-` is standard input, which is read once, in blocks.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for the terminal"
)]

use std::fs::File;
use std::io::{Read, stdin};
use std::time::Instant;

use packet::pcap::{Block, Error, Frame, Reader};

fn main() {
    let path = std::env::args().nth(1).unwrap();
    let rounds = std::env::args().nth(2).map_or(3, |n| n.parse().unwrap());
    if path == "-" {
        return measure("blocks", stdin().lock(), blocks);
    }
    for _ in 0..rounds {
        let open = || File::open(&path).unwrap();
        measure("frames", open(), frames);
        measure("blocks", open(), blocks);
        measure("owned", open(), owned);
    }
}

/// Frames, and their bytes.
#[derive(Default)]
struct FrameCount(u64, u64);

impl FrameCount {
    fn add(&mut self, frame: Frame<'_>) {
        self.0 += 1;
        self.1 += frame.bytes.len() as u64;
    }
}

fn frames<R: Read>(mut reader: Reader<R>, count: &mut FrameCount) -> Result<(), Error> {
    while let Some(frame) = reader.read()? {
        count.add(frame);
    }
    Ok(())
}

fn blocks<R: Read>(mut reader: Reader<R>, count: &mut FrameCount) -> Result<(), Error> {
    let mut block = Block::new();
    while reader.read_block(&mut block)? {
        block.frames().for_each(|frame| count.add(frame));
    }
    Ok(())
}

fn owned<R: Read>(reader: Reader<R>, count: &mut FrameCount) -> Result<(), Error> {
    for captured in reader {
        count.add(captured?.as_frame());
    }
    Ok(())
}

type ReadMethod<R> = fn(Reader<R>, &mut FrameCount) -> Result<(), Error>;

#[expect(clippy::cast_precision_loss, reason = "a rate for the terminal")]
fn measure<R: Read>(name: &str, input: R, method: ReadMethod<R>) {
    let mut count = FrameCount::default();
    let start = Instant::now();
    let end = Reader::new(input).and_then(|reader| method(reader, &mut count));
    let seconds = start.elapsed().as_secs_f64();
    let FrameCount(count, bytes) = count;
    println!(
        "{name}: {count} frames of {bytes} bytes in {seconds:.3} s: {:.2} M frames/s, {:.2} GB/s",
        count as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e9
    );
    if let Err(error) = end {
        println!("{error}");
    }
}
