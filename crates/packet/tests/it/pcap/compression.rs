//! Compressed captures: gzip is decompressed. For other formats, the error names the program that
//! decompresses them.

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use packet::pcap::{Error, OwnedFrame, Reader};

use super::samples::{Order, captured, three, written};
use crate::common::read_every_way;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn ng() -> Vec<u8> {
    let order = Order::Big;
    let packet = order.enhanced(0, 1, 4, b"abcd").repeat(9);
    [order.section(), order.interface(0, &[]), packet].concat()
}

#[test]
fn gzip_is_unpacked_in_however_many_members() {
    for file in [written(&three()), ng()] {
        let expected = read_every_way(&file);
        assert_eq!(read_every_way(&gzip(&file)), expected);
        for at in 0..file.len() {
            let members = [gzip(&file[..at]), gzip(&file[at..])].concat();
            assert_eq!(read_every_way(&members), expected, "split at {at}");
        }
        let each_byte: Vec<u8> = file.iter().flat_map(|byte| gzip(&[*byte])).collect();
        assert_eq!(read_every_way(&each_byte), expected);
    }
}

#[test]
fn gzip_that_is_cut_off_gives_its_whole_records_and_one_error() {
    let packed = gzip(&written(&three()));
    for length in 4..packed.len() {
        let (frames, error) = read_every_way(&packed[..length]);
        assert_eq!(frames[..], three()[..frames.len()]);
        let error = error.unwrap();
        let cut = format!("cut off after {} packets, ", frames.len());
        assert!(error.starts_with(&cut), "{length} bytes: {error}");
    }
}

#[test]
fn gzip_headers_may_have_everything_and_zeros_may_pad_the_file() {
    let file = written(&three());
    let everything = GzBuilder::new()
        .filename("capture.pcap")
        .comment("of the lab")
        .extra(vec![0; 300])
        .mtime(1_700_000_000);
    let mut encoder = everything.write(Vec::new(), Compression::best());
    encoder.write_all(&file[..50]).unwrap();
    let mut packed = encoder.finish().unwrap();
    packed.extend([0; 700]);
    packed.extend(with_header_check(&gzip(&file[50..])));
    packed.extend([0; 200_000]);
    assert_eq!(read_every_way(&packed), (three().into(), None));
}

/// Adds a checksum of the header, which the library does not write.
fn with_header_check(packed: &[u8]) -> Vec<u8> {
    let mut header = packed[..10].to_vec();
    header[3] |= 2;
    [&header[..], &[0xaa; 2], &packed[10..]].concat()
}

#[test]
fn a_gzip_header_without_end_is_refused() {
    let endless = [
        &[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0][..],
        &vec![b'a'; 1 << 20],
    ]
    .concat();
    let error = Reader::new(&endless[..]).unwrap_err();
    let expected = "after 0 packets, at byte 0: a gzip header of impossible length";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn gzip_that_is_damaged_says_so_after_its_frames() {
    let whole = gzip(&written(&three()));
    let changed = |at: usize| {
        let mut packed = whole.clone();
        packed[at] ^= 1;
        packed
    };
    let differs = "compressed data that disagrees with its checksum";
    for (packed, what) in [
        (changed(whole.len() - 8), differs),
        (changed(whole.len() - 4), differs),
        (
            [&whole, &b"?"[..]].concat(),
            "something that is not gzip after what is",
        ),
    ] {
        let (frames, error) = read_every_way(&packed);
        assert_eq!(frames, three());
        assert_eq!(
            error.unwrap(),
            format!("after 3 packets, at byte 81: {what}")
        );
    }
}

#[test]
fn frames_before_damage_are_delivered() {
    let file = written(&three());
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&file[..44]).unwrap();
    encoder.flush().unwrap();
    let mut packed = encoder.get_ref().clone();
    // A deflate block of an undefined type.
    packed.push(7);
    let (frames, error) = read_every_way(&packed);
    assert_eq!(frames[..], three()[..1]);
    let expected = "after 1 packets, at byte 44: damaged compressed data";
    assert_eq!(error.unwrap(), expected);
}

/// Each frame can be read as soon as the writer has flushed it.
#[test]
fn packed_frames_arrive_as_soon_as_they_are_whole() {
    let file = written(&three());
    let (output, input) = std::io::pipe().unwrap();
    let mut encoder = GzEncoder::new(input, Compression::fast());
    let mut pass = |bytes: &[u8]| {
        encoder.write_all(bytes).unwrap();
        encoder.flush().unwrap();
    };
    pass(&file[..24]);
    let mut reader = Reader::new(output).unwrap();
    for (record, expected) in [&file[24..44], &file[44..65], &file[65..]]
        .iter()
        .zip(three())
    {
        pass(record);
        assert_eq!(OwnedFrame::from(reader.read().unwrap().unwrap()), expected);
    }
    encoder.finish().unwrap();
    assert!(reader.read().unwrap().is_none());
}

/// A compressed block expands to more than one read, and nothing more is written until it has been read.
#[test]
fn many_packed_frames_arrive_at_once() {
    let frames = vec![captured(1, 1000, &[7; 1000]); 300];
    let (output, mut input) = std::io::pipe().unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&written(&frames)).unwrap();
    encoder.flush().unwrap();
    input.write_all(encoder.get_ref()).unwrap();
    let mut reader = Reader::new(output).unwrap();
    for expected in &frames {
        assert_eq!(&OwnedFrame::from(reader.read().unwrap().unwrap()), expected);
    }
}

#[test]
fn other_compressions_are_named() {
    for (start, program) in [
        (&b"\x28\xb5\x2f\xfd"[..], "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh9", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (&gzip(&gzip(b"twice")), "gzip"),
    ] {
        let error = Reader::new(start).unwrap_err();
        assert!(matches!(error, Error::Compressed { program: p } if p == program));
        let expected =
            format!("compressed: decompress it first ({program} -dc FILE | lowroad ... -)");
        assert_eq!(error.to_string(), expected);
    }
    assert!(matches!(
        Reader::new(&gzip(b"text")[..]),
        Err(Error::Format)
    ));
}
