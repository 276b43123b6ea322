//! Every format, byte order and clock.

use packet::pcap::{ETHERNET, Reader, Writer};

use super::samples::{ORDERS, Order, captured, three, written};
use crate::common::read_every_way;

#[test]
fn what_is_written_reads_back() {
    assert_eq!(read_every_way(&written(&three())), (three().into(), None));
    let file = written(&[]);
    assert_eq!(read_every_way(&file), (vec![], None));
    let reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.link(), Some((ETHERNET, 262_144)));
}

#[test]
fn times_that_a_file_cannot_count_are_written_as_the_nearest() {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for time in [-1, i64::MAX] {
        writer.write(time, b"").unwrap();
    }
    let (frames, _) = read_every_way(&writer.finish().unwrap());
    let times = frames.iter().map(|frame| frame.timestamp_ns);
    let last = i64::from(u32::MAX) * 1_000_000_000 + 999_999_999;
    assert_eq!(times.collect::<Vec<_>>(), [0, last]);
}

#[test]
fn classic_captures_read_in_either_order_and_every_variant() {
    // The magic number, bytes after the file's header and the record's, and nanoseconds.
    let variants = [
        (0xa1b2_c3d4, 0, 0, 5000),
        (0xa1b2_3c4d, 0, 0, 5),
        (0xa1b2_cd34, 0, 8, 5000),
        (0x1c00_01ab, 4, 0, 5000),
        (0x1c00_01ac, 4, 0, 5),
    ];
    for order in ORDERS {
        for (magic, after_header, after_record, fraction) in variants {
            let mut file = order.classic(magic, (2, 4));
            file.extend(vec![9; after_header]);
            for _ in 0..2 {
                file.extend(order.words(&[7, 5, 2, 60]));
                file.extend(vec![9; after_record]);
                file.extend_from_slice(b"xy");
            }
            let expected = captured(7_000_000_000 + fraction, 60, b"xy");
            let expected = (vec![expected.clone(), expected], None);
            assert_eq!(read_every_way(&file), expected, "{order:?} {magic:x}");
        }
    }
}

#[test]
fn old_versions_exchange_the_two_lengths() {
    for order in ORDERS {
        for (version, lengths) in [
            ((2, 2), [60, 2]),
            ((2, 3), [2, 60]),
            ((2, 3), [60, 2]),
            ((2, 4), [2, 60]),
            ((543, 0), [60, 2]),
        ] {
            let mut file = order.classic(0xa1b2_c3d4, version);
            file.extend(order.words(&[7, 5, lengths[0], lengths[1]]));
            file.extend_from_slice(b"xy");
            let expected = captured(7_000_005_000, 60, b"xy");
            assert_eq!(read_every_way(&file), (vec![expected], None));
        }
    }
}

#[test]
fn frames_may_be_longer_than_the_snapshot_and_the_link_has_flags_above_it() {
    let mut file = Order::Little.classic(0xa1b2_c3d4, (2, 4));
    // Four bytes a frame; a frame check sequence of two words.
    file[16..24].copy_from_slice(&[4, 0, 0, 0, 1, 0, 0, 0x24]);
    file.extend(Order::Little.words(&[0, 0, 6, 6]));
    file.extend_from_slice(b"longer");
    let frames = read_every_way(&file);
    assert_eq!(frames, (vec![captured(0, 6, b"longer")], None));
    let reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.link(), Some((ETHERNET, 4)));
}

#[test]
fn every_packet_block_reads_in_either_order_and_others_are_skipped() {
    let section = |order: Order| {
        [
            order.section(),
            order.block(0x0bad, &[1; 8]),
            order.interface(3, &[order.name()]),
            order.block(4, b"192.0.2.1 is somebody"),
            order.enhanced(0, 7, 60, b"xyzxy"),
            order.simple(9, b"abc"),
            order.block(0xa, &vec![7; 5 << 20]),
            order.interface(0, &[order.resolution(9)]),
            order.obsolete(1, 7, 60, b"pqr"),
            order.simple(2, b"de"),
        ]
        .concat()
    };
    let frames = [
        captured(7000, 60, b"xyzxy"),
        captured(0, 9, b"abc"),
        captured(7, 60, b"pqr"),
        captured(0, 2, b"de"),
    ];
    // Sections of different machines may follow each other.
    let file = ORDERS.map(section).concat();
    let expected = [&frames[..], &frames].concat();
    assert_eq!(read_every_way(&file), (expected, None));
    let mut reader = Reader::new(&file[..]).unwrap();
    assert_eq!(reader.link(), None);
    reader.read().unwrap();
    assert_eq!(reader.link(), Some((ETHERNET, 3)));
}

/// The time that an interface with these options gives to a number of units.
fn time(options: &[Vec<u8>], units: u64) -> i64 {
    let order = Order::Big;
    let packet = order.enhanced(0, units, 0, b"");
    let file = [order.section(), order.interface(0, options), packet].concat();
    let (frames, error) = read_every_way(&file);
    assert_eq!(error, None);
    frames[0].timestamp_ns
}

#[test]
fn a_pcapng_clock_has_any_resolution() {
    let units = (1 << 32) + 2;
    assert_eq!(time(&[], units), 4_294_967_298_000);
    for (resolution, nanoseconds) in [
        (3, 4_294_967_298_000_000),
        (6, 4_294_967_298_000),
        (8, 42_949_672_980),
        (9, 4_294_967_298),
        (10, 429_496_729),
        (18, 4),
        (19, 0),
        (127, 0),
        (0x80, 4_294_967_298_000_000_000),
        (0x8a, 4_194_304_001_953_125),
        (0xa0, 1_000_000_000),
        (0xff, 0),
        (0, 4_294_967_298_000_000_000),
    ] {
        let options = [Order::Big.name(), Order::Big.resolution(resolution)];
        assert_eq!(time(&options, units), nanoseconds, "{resolution:#x}");
    }
}

#[test]
fn a_pcapng_clock_may_be_offset_and_does_not_overflow() {
    let order = Order::Big;
    let offset = |seconds| time(&[order.resolution(9), order.offset(seconds)], 5);
    assert_eq!(offset(3), 3_000_000_005);
    assert_eq!(offset(-3), -2_999_999_995);
    assert_eq!(offset(i64::MAX), i64::MAX);
    assert_eq!(offset(i64::MIN), i64::MIN);
    let late = [order.resolution(0)];
    assert_eq!(time(&late, u64::MAX), i64::MAX);
    // Two numbers that only together are a time.
    let far = [order.resolution(0), order.offset(-20_000_000_000)];
    assert_eq!(time(&far, 20_000_000_001), 1_000_000_000);
    // What follows the end of the options is none.
    let ended = [order.options_end(), order.resolution(9)];
    assert_eq!(time(&ended, 5), 5000);
}
