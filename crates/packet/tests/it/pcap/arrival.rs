//! Captures that arrive in pieces: nothing is lost between two reads, and nothing is waited for
//! that a frame does not need.

use std::io::Write;

use packet::pcap::{Block, OwnedFrame, Reader};

use super::samples::{Order, captured, three, written};
use crate::common::{Pieces, read, read_every_way, singly};

/// All frames of a pcapng file, and the file in its blocks.
fn ng(order: Order) -> (Vec<OwnedFrame>, Vec<Vec<u8>>) {
    let frames = vec![captured(1000, 4, b"abcd"), captured(2000, 60, b"e")];
    let blocks = vec![
        order.section(),
        order.interface(0, &[order.name(), order.resolution(6)]),
        order.enhanced(0, 1, 4, b"abcd"),
        order.block(0xbad, b"skipped"),
        order.enhanced(0, 2, 60, b"e"),
    ];
    (frames, blocks)
}

#[test]
fn a_record_may_be_split_anywhere() {
    let (frames, blocks) = ng(Order::Little);
    for (frames, file) in [
        (three().into(), written(&three())),
        (frames, blocks.concat()),
    ] {
        for first in 1..file.len() {
            for second in 1..=file.len() - first {
                let lengths = [first, second, file.len()];
                let pieces = Pieces::new(&file, &lengths);
                let whole = read(pieces, singly);
                assert_eq!(whole, (frames.clone(), None), "{lengths:?}");
            }
        }
    }
}

/// Frames of all sizes, and enough of them for more than one block.
fn many(first: usize) -> Vec<OwnedFrame> {
    let sizes = (0..6000).map(|index| if index == 0 { first } else { index * 37 % 1500 });
    let time = |index: usize| i64::try_from(index).unwrap() * 1000;
    let frame = |(index, size)| {
        let bytes: Vec<u8> = (0..=255).cycle().skip(index % 256).take(size).collect();
        captured(time(index), u32::try_from(size).unwrap(), &bytes)
    };
    sizes.enumerate().map(frame).collect()
}

#[test]
fn a_record_may_be_split_anywhere_by_a_block() {
    for first in 0..70 {
        let frames = many(first);
        let whole = read(&written(&frames)[..], singly);
        assert_eq!(whole.1, None);
        assert!(whole.0 == frames, "a first frame of {first} bytes");
    }
    let frames = many(9);
    let (whole, _) = read_every_way(&written(&frames));
    assert!(whole == frames);
}

#[test]
fn blocks_grow_to_many_frames_and_keep_their_memory() {
    let file = written(&many(9));
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut block = Block::new();
    let mut lengths = Vec::new();
    while reader.read_block(&mut block).unwrap() {
        lengths.push(block.len());
        assert!(block.get(block.len()).is_none());
        if lengths.len() == 7 {
            assert!(block.len() > 1000, "{lengths:?}");
            let before = block.get(0).unwrap().bytes.as_ptr();
            assert!(reader.read_block(&mut block).unwrap());
            let again = block.get(0).unwrap().bytes.as_ptr();
            assert!(before.addr().abs_diff(again.addr()) < 4096);
        }
    }
}

/// Nobody writes more before the frame is read: a reader that waits for it waits for ever.
#[test]
fn a_slow_pipe_yields_each_frame_as_soon_as_it_is_whole() {
    let file = written(&three());
    let classic = [&file[24..44], &file[44..65], &file[65..]];
    slowly(&file[..24], &classic.map(<[u8]>::to_vec), &three());
    let (frames, mut blocks) = ng(Order::Big);
    let packets = blocks.split_off(2);
    let packets = vec![packets[0].clone(), packets[1..].concat()];
    slowly(&blocks.concat(), &packets, &frames);
}

fn slowly(header: &[u8], records: &[Vec<u8>], frames: &[OwnedFrame]) {
    let (output, mut input) = std::io::pipe().unwrap();
    input.write_all(header).unwrap();
    let mut reader = Reader::new(output).unwrap();
    let mut block = Block::new();
    for (index, (record, expected)) in records.iter().zip(frames).enumerate() {
        input.write_all(record).unwrap();
        let frame = if index == 1 {
            assert!(reader.read_block(&mut block).unwrap());
            block.get(0)
        } else {
            reader.read().unwrap()
        };
        assert_eq!(&OwnedFrame::from(frame.unwrap()), expected);
    }
    input.write_all(&records[..2].concat()).unwrap();
    assert!(reader.read_block(&mut block).unwrap());
    let block: Vec<_> = block.frames().map(OwnedFrame::from).collect();
    assert_eq!(block, frames[..2]);
    drop(input);
    assert!(reader.read().unwrap().is_none());
}

#[test]
fn a_pipe_may_deliver_byte_by_byte() {
    let (output, mut input) = std::io::pipe().unwrap();
    let writer = std::thread::spawn(move || {
        for byte in written(&three()) {
            input.write_all(&[byte]).unwrap();
        }
    });
    assert_eq!(read(output, singly), (three().into(), None));
    writer.join().unwrap();
}
