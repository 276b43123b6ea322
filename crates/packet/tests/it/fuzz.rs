//! Every parser on noise and on damaged input, from ten fixed seeds: it may refuse, never panic,
//! and what it reports lies inside what it was given.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use packet::build;
use packet::parse::{Family, Verdict, parse};
use packet::rtp;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::common::read_every_way;
use crate::pcap::samples::Order;

fn for_ten_seeds<S: Strategy>(strategy: &S, property: impl Fn(S::Value)) {
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(1000 * sys::require::fuzz())
        };
        let result = TestRunner::new_with_rng(config, rng).run(strategy, |value| {
            property(value);
            Ok(())
        });
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

/// `good` with up to eight bytes changed and its end cut off.
fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 0..8);
    (changes, any::<Index>()).prop_map(move |(changes, cut)| {
        let mut bytes = good.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(good.len() + 1));
        bytes
    })
}

fn check_frame(frame: &[u8]) {
    let Ok(parsed) = parse(frame) else { return };
    assert!(parsed.l3 <= frame.len());
    if parsed.family.is_some() {
        let end = parsed.l3 + parsed.ip_length;
        assert!(end <= frame.len());
        assert!(parsed.l3 < parsed.l4 && parsed.l4 <= end);
        assert!(parsed.payload <= end);
    }
    if parsed.verdict == Verdict::Complete {
        assert!(parsed.payload > parsed.l4);
        assert!(matches!(parsed.family, Some(Family::V4 | Family::V6)));
    }
}

#[test]
fn frames() {
    let v4 = build::udp(([192, 0, 2, 1], 5000).into(), ([192, 0, 2, 2], 5004).into());
    let v6 = build::echo([0x2001; 8].into(), [0x2002; 8].into());
    let v6 = v6.extension(build::Extension::HopByHop(1)).vlan(3);
    for_ten_seeds(&prop::collection::vec(any::<u8>(), 0..200), |noise| {
        check_frame(&noise);
    });
    for_ten_seeds(&damaged(v4.options(3).payload([7; 50]).frame()), |frame| {
        check_frame(&frame);
    });
    for_ten_seeds(&damaged(v6.frame()), |frame| check_frame(&frame));
}

#[test]
fn rtp_packets() {
    let mut good = vec![0xb2, 0xe0, 0x12, 0x34, 0, 0, 0, 9, 0, 0, 0x1f, 0x2e];
    good.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 0xbe, 0xde, 0, 1, 0x10, 7, 0, 0]);
    good.extend_from_slice(b"abc\0\x02");
    for_ten_seeds(&damaged(good), |bytes| {
        if let Ok(packet) = rtp::Packet::new_checked(&bytes[..]) {
            assert!(packet.header_len() + packet.payload().len() <= bytes.len());
            assert!(packet.sources().count() <= 15);
            assert!(
                packet
                    .extension()
                    .is_none_or(|(_, data)| data.len() % 4 == 0)
            );
        }
    });
}

#[test]
fn captures() {
    for magic in [0xa1b2_c3d4, 0xa1b2_cd34, 0x1c00_01ac] {
        damaged_captures(classic(magic), 1);
    }
    let order = Order::Little;
    let section = [
        order.section(),
        order.interface(1024, &[order.name(), order.resolution(9), order.offset(-7)]),
        order.enhanced(0, 1 << 40, 4, &[1, 2, 3, 4]),
        order.block(0xbad, &[0; 8]),
        order.interface(0, &[]),
        order.obsolete(1, 1 << 40, 1500, &[1, 2, 3]),
        order.simple(4, &[1, 2, 3, 4]),
    ];
    damaged_captures(section.concat(), 1);
    damaged_captures(section.concat().repeat(2), 1);
}

#[test]
fn compressed_captures() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&classic(0xa1b2_c3d4)).unwrap();
    let packed = encoder.finish().unwrap();
    // More than 1032 bytes cannot come from one.
    damaged_captures(packed, 1032);
}

fn classic(magic: u32) -> Vec<u8> {
    let order = Order::Big;
    let (after_header, after_record) = match magic {
        0xa1b2_cd34 => (0, 8),
        0x1c00_01ac => (4, 0),
        _ => (0, 0),
    };
    let mut file = order.classic(magic, (2, 4));
    file.extend(vec![0; after_header]);
    for length in [60, 0, 5] {
        file.extend(order.words(&[1_700_000_000, 999_999, length, 1500]));
        file.extend((0..after_record + length).map(|at| at.to_le_bytes()[0]));
    }
    file
}

/// Damages a capture of which one byte may become so many.
fn damaged_captures(good: Vec<u8>, expansion: usize) {
    let (frames, error) = read_every_way(&good);
    assert!(error.is_none() && frames.len() >= 3, "{error:?}");
    for_ten_seeds(&damaged(good), |file| {
        let (frames, _) = read_every_way(&file);
        let bytes: usize = frames.iter().map(|packet| packet.frame.len()).sum();
        assert!(bytes <= file.len() * expansion);
    });
}
