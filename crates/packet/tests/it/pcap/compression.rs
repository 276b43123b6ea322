//! Compressed captures: gzip, zstd, xz and lz4 are decompressed. For other formats, the error names the program
//! that decompresses them.

use std::io::{PipeWriter, Write};

use flate2::write::GzEncoder;
use flate2::{Compression, Crc, GzBuilder};
use liblzma::write::XzEncoder;
use lz4_flex::frame::{FrameEncoder, FrameInfo};
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
        (&b"BZh9"[..], "bzip2"),
        (&gzip(&gzip(b"twice")), "gzip"),
        (&gzip(&zstd(b"twice")), "zstd"),
        (&zstd(&xz(b"twice")), "xz"),
        (&xz(&lz4(b"twice")), "lz4"),
    ] {
        let error = Reader::new(start).unwrap_err();
        assert!(matches!(error, Error::Compressed { program: p } if p == program));
        let expected =
            format!("compressed: decompress it first ({program} -dc FILE | lowroad ... -)");
        assert_eq!(error.to_string(), expected);
    }
    for (_, compress) in COMPRESSORS {
        assert!(matches!(
            Reader::new(&compress(b"text")[..]),
            Err(Error::Format)
        ));
    }
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let info = FrameInfo::new().content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

type Compressor = fn(&[u8]) -> Vec<u8>;

const COMPRESSORS: [(&str, Compressor); 4] =
    [("gzip", gzip), ("zstd", zstd), ("xz", xz), ("lz4", lz4)];

#[test]
fn every_compression_is_read_in_however_many_frames() {
    let large: Vec<OwnedFrame> = (0..3000_u16)
        .map(|at| captured(i64::from(at), 900, &vec![at.to_le_bytes()[0]; 900]))
        .collect();
    for (name, compress) in COMPRESSORS {
        for file in [written(&three()), ng()] {
            let expected = read_every_way(&file);
            for at in [0, 1, 24, 30, file.len()] {
                let frames = [compress(&file[..at]), compress(&file[at..])].concat();
                assert_eq!(read_every_way(&frames), expected, "{name} split at {at}");
            }
        }
        let file = written(&large);
        let (frames, error) = read_every_way(&compress(&file));
        assert_eq!((frames == large, error), (true, None), "{name}");
    }
}

#[test]
fn every_compression_that_is_cut_off_gives_its_whole_records_and_one_error() {
    for (name, compress) in COMPRESSORS {
        let packed = compress(&written(&three()));
        for length in 4..packed.len() {
            let (frames, error) = read_every_way(&packed[..length]);
            assert_eq!(frames[..], three()[..frames.len()], "{name}");
            let cut = format!("cut off after {} packets, ", frames.len());
            let error = error.unwrap_or_default();
            assert!(error.starts_with(&cut), "{name}, {length} bytes: {error}");
        }
    }
}

#[test]
fn every_compression_that_is_damaged_gives_an_error() {
    for (name, compress) in COMPRESSORS {
        let whole = compress(&written(&three()));
        for at in 4..whole.len() {
            let mut packed = whole.clone();
            packed[at] ^= 0x55;
            let (frames, error) = read_every_way(&packed);
            // Fields such as the time in gzip's header mean nothing to the content.
            assert!(frames.len() <= 3, "{name}");
            assert!(error.is_some() || frames == three(), "{name}, byte {at}");
        }
        let (frames, error) = read_every_way(&[&whole, &[b'?'; 16][..]].concat());
        assert_eq!(frames, three(), "{name}");
        let error = error.unwrap_or_default();
        let what = error.strip_prefix("after 3 packets, at byte 81: ");
        let what = what.unwrap_or_default();
        let expected = match name {
            "xz" => "damaged xz data".to_owned(),
            "gzip" => "something that is not gzip after what is".to_owned(),
            name => format!("something other than {name} after "),
        };
        assert!(what.starts_with(&expected), "{name}: {error}");
    }
}

/// What a writer has flushed is read before the writer goes on.
#[test]
fn frames_of_every_compression_arrive_as_soon_as_they_are_whole() {
    let to: [fn(PipeWriter) -> Box<dyn Write>; 3] = [
        |pipe| Box::new(zstd::Encoder::new(pipe, 0).unwrap().auto_finish()),
        |pipe| Box::new(XzEncoder::new(pipe, 1)),
        |pipe| Box::new(FrameEncoder::new(pipe).auto_finish()),
    ];
    let file = written(&three());
    for to in to {
        let (output, pipe) = std::io::pipe().unwrap();
        let mut encoder = to(pipe);
        let mut pass = |bytes: &[u8]| {
            encoder.write_all(bytes).unwrap();
            // XzEncoder writes what a flush has made in the next one.
            encoder.flush().unwrap();
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
        drop(encoder);
        assert!(reader.read().unwrap().is_none());
    }
}

#[test]
fn blocks_before_damage_are_delivered() {
    let frames = vec![captured(1, 1000, &[7; 1000]); 1000];
    let packed = zstd(&written(&frames));
    let (whole, error) = read_every_way(&[&packed[..packed.len() - 4], &[0; 4]].concat());
    assert_eq!(whole.len(), 1000);
    assert!(error.unwrap().contains("damaged zstd data"));
}

#[test]
fn a_zstd_file_may_begin_with_a_skippable_frame() {
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let packed = [skipped, zstd(&written(&three()))].concat();
    assert_eq!(read_every_way(&packed), (three().into(), None));
}

/// A header can ask for gigabytes. Its file need not have them.
#[test]
fn the_memory_of_a_decoder_is_limited() {
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0, (31 - 10) << 3, 1, 0, 0];
    let error = Reader::new(&window[..]).unwrap_err().to_string();
    let expected =
        "needs a zstd window of more than 128 MiB: decompress it first (zstd -d --long=31)";
    assert!(error.ends_with(expected), "{error}");

    let mut packed = xz(&written(&three()));
    // The block header begins at byte 12 with its length in words; the filter LZMA2 has one byte, of which 40
    // means 4 GiB.
    let block = 12..12 + 4 * (usize::from(packed[12]) + 1);
    assert_eq!(packed[14..16], [0x21, 1]);
    packed[16] = 40;
    let mut sum = Crc::new();
    sum.update(&packed[block.start..block.end - 4]);
    packed[block.end - 4..block.end].copy_from_slice(&sum.sum().to_le_bytes());
    let error = Reader::new(&packed[..]).unwrap_err().to_string();
    let expected = "needs more than 130 MiB for its xz dictionary: decompress it first (xz -d)";
    assert!(error.ends_with(expected), "{error}");
}
