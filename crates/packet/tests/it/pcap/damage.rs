//! Captures that are truncated or inconsistent.

use std::io::{self, Read};

use packet::pcap::{Error, Reader};

use super::samples::{Order, captured, three, written};
use crate::common::{read, read_every_way, singly};

const MAX_FRAME_LEN: usize = 1 << 20;

#[test]
fn a_file_cut_off_anywhere_gives_its_whole_records_and_one_error() {
    let order = Order::Little;
    let ng = [
        order.section(),
        order.interface(0, &[]),
        order.enhanced(0, 1, 4, b"abcd"),
        order.block(0xbad, b"skipped"),
        order.obsolete(0, 2, 60, b"e"),
        order.simple(3, b"fgh"),
    ];
    let classic = written(&three());
    let classic = [
        &classic[..24],
        &classic[24..44],
        &classic[44..65],
        &classic[65..],
    ];
    cut_off(&classic.map(<[u8]>::to_vec), 1);
    cut_off(&ng, 0);
}

/// Truncates a file of these records at every byte. The first `header` records are the file's header.
fn cut_off(records: &[Vec<u8>], header: usize) {
    let file = records.concat();
    let (frames, None) = read_every_way(&file) else {
        panic!("the whole file is well")
    };
    let mut start = 0;
    for (number, record) in records.iter().enumerate() {
        for length in start..start + record.len() {
            let (part, error) = read_every_way(&file[..length]);
            assert_eq!(part[..], frames[..part.len()]);
            let packets = part.len();
            let cut = format!("cut off after {packets} packets, in the record at byte {start}");
            let expected = match length {
                ..4 => Some("not a pcap or pcapng file".to_owned()),
                _ if length == start && number >= header => None,
                _ => Some(cut),
            };
            assert_eq!(error, expected, "{length} bytes");
        }
        start += record.len();
    }
}

fn error(file: &[u8]) -> String {
    read_every_way(file).1.unwrap()
}

#[test]
fn other_files_are_refused() {
    for file in [&b""[..], b"abc", b"hello, world", &[0; 100]] {
        assert!(matches!(Reader::new(file), Err(Error::Format)));
    }
}

#[test]
fn a_length_beyond_any_frames_is_refused_and_asks_for_no_memory() {
    let order = Order::Little;
    let longest = vec![7; MAX_FRAME_LEN];
    let file = written(&[captured(0, 4, b"abcd")]);
    let start = [order.section(), order.interface(0, &[])].concat();
    // The largest frame that fits each kind of block.
    let mut classic = file.clone();
    classic.extend(order.words(&[0, 0, 1 << 20, 1 << 20]));
    classic.extend_from_slice(&longest);
    for fits in [
        classic,
        [&start[..], &order.enhanced(0, 0, 0, &longest)].concat(),
        [&start[..], &order.simple(1 << 20, &longest)].concat(),
    ] {
        let (frames, error) = read_every_way(&fits);
        assert_eq!(error, None);
        assert_eq!(frames.last().unwrap().frame.len(), MAX_FRAME_LEN);
    }

    for length in [(1 << 20) + 1, u32::MAX] {
        let mut classic = file.clone();
        classic.extend(order.words(&[0, 0, length, 60]));
        let expected = "after 1 packets, at byte 44: a length beyond any frame's";
        assert_eq!(error(&classic), expected);
    }
    let longer = order.enhanced(0, 0, 0, &[&longest[..], b"x"].concat());
    let block = order.words(&[6, u32::MAX - 3, 0]);
    for packet in [longer, block] {
        let file = [&start[..], &packet].concat();
        let expected = "after 0 packets, at byte 48: a length beyond any frame's";
        assert_eq!(error(&file), expected);
    }
}

#[test]
fn a_block_to_be_skipped_may_have_any_length_and_asks_for_no_memory() {
    let order = Order::Little;
    let start = [order.section(), order.interface(0, &[])].concat();
    let endless = order.words(&[0xbad, u32::MAX - 3, 0]);
    let file = [&start[..], &endless, &vec![7; 5 << 20]].concat();
    let expected = "cut off after 0 packets, in the record at byte 48";
    assert_eq!(error(&file), expected);
}

/// A file with these bytes after a section and an interface.
fn after_interface(block: &[u8]) -> String {
    let order = Order::Little;
    let start = [order.section(), order.interface(8, &[])].concat();
    error(&[&start, block].concat())
}

#[test]
fn blocks_that_contradict_themselves_are_refused() {
    let order = Order::Little;
    let mut longer = order.enhanced(0, 0, 60, b"abcd");
    longer[20] = 5;
    let mut differing = order.enhanced(0, 0, 60, b"abcd");
    differing[32] += 4;
    for (block, what) in [
        (longer, "a packet block that contradicts itself"),
        (
            order.simple(9, b"abcd"),
            "a packet block that contradicts itself",
        ),
        (
            order.block(6, &[0; 16]),
            "a packet block that contradicts itself",
        ),
        (
            order.block(3, b""),
            "a packet block that contradicts itself",
        ),
        (differing, "a block whose two lengths differ"),
        (order.words(&[6, 30, 0]), "a block of impossible length"),
        (order.words(&[6, 8, 0]), "a block of impossible length"),
        (order.words(&[0xbad, 0, 0]), "a block of impossible length"),
        (
            order.block(1, &[0; 4]),
            "an interface block that is too short",
        ),
        (
            order.enhanced(1, 0, 0, b""),
            "a packet of an interface that no block describes",
        ),
        (
            [order.section(), order.simple(0, b"")].concat(),
            "a packet of an interface that no block describes",
        ),
    ] {
        let error = after_interface(&block);
        assert!(error.ends_with(what), "{error}: {what}");
    }
}

#[test]
fn sections_nobody_can_know_are_refused() {
    let order = Order::Little;
    let changed = |at: usize, value: u8| {
        let mut section = order.section();
        section[at] = value;
        error(&section)
    };
    assert!(changed(8, 0).ends_with("no known byte order"));
    assert!(changed(12, 2).ends_with("nobody has described"));
    assert!(changed(4, 24).ends_with("header that is too short"));
}

#[test]
fn interfaces_do_not_fill_memory() {
    let order = Order::Big;
    let file = [order.section(), order.interface(0, &[]).repeat(65_537)].concat();
    let (_, error) = read(&file[..], singly);
    let expected = "after 0 packets, at byte 1310748: more interfaces than any machine has";
    assert_eq!(error.unwrap(), expected);
}

/// Fails after its last byte, and is interrupted before every read.
struct Failing<'a>(&'a [u8], bool);

impl Read for Failing<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match self.0.read(into)? {
            0 => Err(io::Error::other("the disk is gone")),
            came => Ok(came),
        }
    }
}

#[test]
fn a_failing_file_gives_its_whole_records_and_what_failed() {
    let file = written(&three());
    let (frames, error) = read(Failing(&file[..70], false), singly);
    assert_eq!(frames[..], three()[..2]);
    let expected = "after 2 packets, at byte 65: the disk is gone";
    assert_eq!(error.unwrap(), expected);
    assert!(Reader::new(Failing(b"", false)).is_err());
}
