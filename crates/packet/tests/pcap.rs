//! Capture files written here and byte by byte, read back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::BufReader;

use packet::pcap::{Captured, ETHERNET, Error, Reader, Writer};

fn captured(timestamp_ns: u64, original_length: u32, frame: &[u8]) -> Captured {
    Captured {
        timestamp_ns,
        original_length,
        link_type: ETHERNET,
        frame: frame.to_vec(),
    }
}

/// Three frames, the second cut by the capture.
fn three() -> [Captured; 3] {
    [
        captured(1_700_000_000_123_456_789, 4, b"abcd"),
        captured(1_700_000_001_000_000_000, 1500, b"efghi"),
        captured(1_700_000_001_000_001_000, 0, b""),
    ]
}

fn written() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for packet in three() {
        writer
            .write_cut(packet.timestamp_ns, packet.original_length, &packet.frame)
            .unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn what_is_written_reads_back_and_a_cut_file_gives_one_error_after_its_good_packets() {
    let file = written();
    let ends = [24, 24 + 16 + 4, 24 + 16 + 4 + 16 + 5, file.len()];
    for length in 0..=file.len() {
        let whole = ends.iter().rposition(|end| *end <= length);
        let (Some(whole), reader) = (whole, Reader::new(&file[..length])) else {
            assert!(Reader::new(&file[..length]).is_err(), "{length} bytes");
            continue;
        };
        let mut reader = reader.unwrap();
        assert_eq!(reader.link(), Some((ETHERNET, 262_144)));
        for expected in &three()[..whole] {
            assert_eq!(&reader.next().unwrap().unwrap(), expected);
        }
        if ends.contains(&length) {
            assert!(reader.next().is_none());
        } else {
            let error = reader.next().unwrap().unwrap_err();
            assert_eq!(error.to_string(), format!("cut off after {whole} packets"));
            assert!(reader.next().is_none(), "one error, not more");
        }
    }
}

#[test]
fn classic_captures_read_in_either_order_and_unit() {
    let words = |order: fn(u32) -> [u8; 4], magic: u32| {
        let mut file = order(magic).to_vec();
        for word in [0x0004_0002, 0, 0, 65535, ETHERNET, 7, 5, 2, 60] {
            file.extend_from_slice(&order(word));
        }
        file.extend_from_slice(b"xy");
        file
    };
    for order in [u32::to_be_bytes, u32::to_le_bytes] {
        for (magic, fraction) in [(0xa1b2_c3d4, 5000), (0xa1b2_3c4d, 5)] {
            let file = words(order, magic);
            let mut reader = Reader::new(&file[..]).unwrap();
            assert_eq!(reader.link(), Some((ETHERNET, 65535)));
            let expected = captured(7_000_000_000 + fraction, 60, b"xy");
            assert_eq!(reader.next().unwrap().unwrap(), expected);
            assert!(reader.next().is_none());
        }
    }
}

/// A pcapng section of one interface with this time resolution option, one unknown block, an
/// enhanced and a simple packet.
fn section(
    order: fn(u32) -> [u8; 4],
    short: fn(u16) -> [u8; 2],
    resolution: Option<u8>,
) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap();
        [&order(kind)[..], &order(length), body, &order(length)].concat()
    };
    let header = [&order(0x1a2b_3c4d)[..], &short(1), &short(0), &[0xff; 8]].concat();
    let mut interface = [&short(1)[..], &short(0), &order(3)].concat();
    if let Some(resolution) = resolution {
        interface.extend_from_slice(&[&short(2)[..], &short(3), b"eth\0"].concat());
        interface.extend_from_slice(&[&short(9)[..], &short(1), &[resolution, 0, 0, 0]].concat());
    }
    let enhanced = [0, 1, 2, 3, 60].map(order).concat();
    [
        block(0x0a0d_0d0a, &header),
        block(1, &interface),
        block(0x0bad, &[1; 8]),
        block(6, &[&enhanced[..], b"xyz\0"].concat()),
        block(3, &[&order(9)[..], b"abc\0"].concat()),
    ]
    .concat()
}

#[test]
fn pcapng_reads_in_either_order_and_any_resolution() {
    let units = (1_u64 << 32) + 2;
    for (resolution, nanoseconds) in [
        (None, units * 1000),
        (Some(6), units * 1000),
        (Some(9), units),
        (
            Some(0x8a),
            u64::try_from(u128::from(units) * 1_000_000_000 / 1024).unwrap(),
        ),
    ] {
        let big = section(u32::to_be_bytes, u16::to_be_bytes, resolution);
        let little = section(u32::to_le_bytes, u16::to_le_bytes, resolution);
        // Sections of different machines may follow each other.
        let both = [&big[..], &little].concat();
        let mut reader = Reader::new(&both[..]).unwrap();
        for _ in 0..2 {
            let expected = captured(nanoseconds, 60, b"xyz");
            assert_eq!(reader.next().unwrap().unwrap(), expected);
            assert_eq!(reader.next().unwrap().unwrap(), captured(0, 9, b"abc"));
        }
        assert!(reader.next().is_none());
    }
}

#[test]
fn broken_files_are_refused_without_asking_for_memory() {
    assert!(matches!(
        Reader::new(&b"hello, world"[..]),
        Err(Error::Format)
    ));
    assert!(matches!(Reader::new(&b""[..]), Err(Error::Format)));

    let mut file = written();
    file[24 + 8..24 + 12].fill(0xff);
    let mut reader = Reader::new(&file[..]).unwrap();
    let error = reader.next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "after 0 packets: a length beyond any frame's"
    );

    let mut file = section(u32::to_le_bytes, u16::to_le_bytes, None);
    let packet = file.len() - 20 - 36;
    file[packet + 20] = 200;
    let mut reader = Reader::new(&file[..]).unwrap();
    let error = reader.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Broken { packets: 0, .. }), "{error}");
}

#[test]
fn every_outside_capture_reads_to_its_end() {
    let Some(folder) = sys::require::corpus() else {
        return;
    };
    let mut packets = 0;
    for entry in std::fs::read_dir(folder.join("pcap")).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("pcap" | "pcapng")) {
            continue;
        }
        let file = BufReader::new(File::open(&path).unwrap());
        for packet in Reader::new(file).unwrap() {
            let packet = packet.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if packet.link_type == ETHERNET {
                // Whatever it makes of it, it does not panic.
                let _ = packet::parse::parse(&packet.frame);
            }
            packets += 1;
        }
    }
    assert!(packets > 0, "no captures in {}", folder.display());
}
