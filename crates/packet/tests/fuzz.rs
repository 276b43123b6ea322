//! Every parser on noise and on damaged input, from ten fixed seeds: it may refuse, never panic,
//! and what it reports lies inside what it was given.

use packet::build;
use packet::parse::{Family, Verdict, parse};
use packet::pcap::{ETHERNET, Reader, Writer};
use packet::rtp;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

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
    let mut classic = Writer::new(Vec::new(), ETHERNET).expect("memory takes everything");
    for length in [60, 0, 5] {
        let written = classic.write(1_700_000_000_123_456_789, &vec![7; length]);
        written.expect("memory takes everything");
    }
    let classic = classic.finish().expect("memory takes everything");
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).expect("short").to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let mut ng = block(
        0x0a0d_0d0a,
        &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0, 0, 0, 0],
    );
    ng.extend(block(1, &[1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0]));
    ng.extend(block(
        6,
        &[[0; 12], [4, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]].concat(),
    ));
    ng.extend(block(3, &[4, 0, 0, 0, 1, 2, 3, 4]));
    for good in [classic, ng] {
        for_ten_seeds(&damaged(good), |file| {
            let Ok(reader) = Reader::new(&file[..]) else {
                return;
            };
            let packets: Vec<_> = reader.collect();
            let errors = packets.iter().filter(|packet| packet.is_err()).count();
            assert!(errors <= 1, "one error, not more");
            let bytes: usize = packets
                .iter()
                .flatten()
                .map(|packet| packet.frame.len())
                .sum();
            assert!(bytes <= file.len());
        });
    }
}
