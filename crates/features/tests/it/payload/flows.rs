//! What a flow keeps of its first payloads, from frames to the flow's end.

use std::net::SocketAddr;

use features::flow::{Flow, Limits};
use features::payload::entropy::bits_per_byte;
use features::{Extractor, Options};
use packet::build;
use packet::pcap::{ETHERNET, Frame};

use super::dns::answered;
use super::hello::browser;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn client() -> SocketAddr {
    ([192, 0, 2, 1], 40_000).into()
}

fn server() -> SocketAddr {
    ([192, 0, 2, 2], 7777).into()
}

fn segment(from: SocketAddr, to: SocketAddr, flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    const SEQUENCE: usize = 14 + 20 + 4;
    let mut frame = build::tcp(from, to, flags, 0).payload(payload).frame();
    frame[SEQUENCE..SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
    frame
}

fn sent(flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    segment(client(), server(), flags, sequence, payload)
}

fn answer(flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    segment(server(), client(), flags, sequence, payload)
}

/// The rows of these frames, and of how many flows a segment was missed.
fn flows(frames: &[Vec<u8>], limits: Limits) -> (Vec<Flow>, u64) {
    let options = Options {
        limits,
        ..Options::default()
    };
    let mut rows = Vec::new();
    let mut extractor = Extractor::new(&options, |flow| rows.push(*flow));
    for bytes in frames {
        let frame = Frame {
            timestamp_ns: 1,
            original_length: u32::try_from(bytes.len()).unwrap(),
            link_type: ETHERNET,
            bytes,
        };
        extractor.frame(&frame);
    }
    let counters = extractor.finish();
    (rows, counters.exported.stream_gaps)
}

fn only(frames: &[Vec<u8>]) -> (Flow, u64) {
    let (mut rows, gaps) = flows(frames, Limits::default());
    assert_eq!(rows.len(), 1);
    (rows.remove(0), gaps)
}

#[test]
fn a_hello_in_two_segments_is_found_on_any_port() {
    let stream = browser().records(1 << 14);
    let (flow, gaps) = only(&[
        sent(SYN, u32::MAX, b""),
        answer(SYN | ACK, 500, b""),
        sent(ACK, 0, b""),
        sent(ACK, 0, &stream[..1000]),
        sent(ACK, 0, &stream[..1000]),
        sent(ACK, 1000, &stream[1000..]),
        answer(ACK, 501, b"\x16\x03\x03\x00\x02\x02\x00"),
        answer(ACK, 508, b"other"),
    ]);
    assert_eq!(flow.contents.hello(), Some(&browser().read()));
    assert_eq!(flow.contents.entropy(0), bits_per_byte(&stream[..1000]));
    assert_eq!(
        flow.contents.entropy(1),
        bits_per_byte(b"\x16\x03\x03\x00\x02\x02\x00")
    );
    assert_eq!((flow.contents.dns_name(), gaps), (None, 0));
}

#[test]
fn the_hello_is_found_whoever_is_seen_first() {
    let stream = browser().records(1 << 14);
    for frames in [
        vec![answer(SYN | ACK, 500, b""), sent(ACK, 1, &stream)],
        vec![answer(ACK, 501, b"hello"), sent(ACK, 1, &stream)],
        vec![sent(ACK, 1, &stream), answer(ACK, 501, b"hello")],
        vec![sent(SYN, 0, &stream), answer(SYN | ACK, 500, b"")],
    ] {
        let (flow, gaps) = only(&frames);
        assert_eq!(flow.contents.hello(), Some(&browser().read()));
        assert_eq!(gaps, 0);
    }
}

#[test]
fn a_missing_segment_is_counted() {
    let stream = browser().records(1 << 14);
    let (start, end) = stream.split_at(1000);
    for frames in [
        vec![sent(SYN, 0, b""), sent(ACK, 1001, end), sent(ACK, 1, start)],
        vec![
            sent(SYN, 0, b""),
            sent(ACK, 1, &start[..9]),
            sent(ACK, 1001, end),
        ],
        vec![sent(ACK, 1, start)],
    ] {
        let (flow, gaps) = only(&frames);
        assert_eq!((flow.contents.hello(), gaps), (None, 1));
        assert!(flow.contents.entropy(0).is_some());
    }
    let other = only(&[sent(ACK, 1, b"GET /"), sent(ACK, 1001, end)]);
    assert_eq!((other.0.contents.hello(), other.1), (None, 0));
}

#[test]
fn names_are_those_of_the_first_payload() {
    let dns: SocketAddr = ([192, 0, 2, 53], 53).into();
    let datagram = |payload: &[u8]| build::udp(client(), dns).payload(payload).frame();
    let (flow, _) = only(&[datagram(&answered()), datagram(b"second")]);
    assert_eq!(flow.contents.dns_name(), Some("www.example.com"));
    assert_eq!(flow.contents.entropy(0), bits_per_byte(&answered()));
    assert_eq!(flow.contents.entropy(1), None);
    let (flow, _) = only(&[datagram(b"first"), datagram(&answered())]);
    assert_eq!(flow.contents.dns_name(), None);
    let length = u16::try_from(answered().len()).unwrap().to_be_bytes();
    let (flow, _) = only(&[sent(ACK, 1, &[&length[..], &answered()].concat())]);
    assert_eq!(flow.contents.dns_name(), Some("www.example.com"));
}

#[test]
fn ethernet_s_padding_is_no_payload() {
    let padded = build::udp(client(), server()).payload(b"ab").padding(16);
    let (flow, _) = only(&[padded.frame()]);
    assert_eq!(flow.contents.entropy(0), Some(1.0));
}

#[test]
fn payloads_are_left_alone_on_request() {
    let limits = Limits {
        payloads: false,
        ..Limits::default()
    };
    let (rows, gaps) = flows(&[sent(ACK, 1, &browser().records(1 << 14))], limits);
    let contents = &rows[0].contents;
    assert_eq!(
        (contents.hello(), contents.entropy(0), gaps),
        (None, None, 0)
    );
}

#[test]
fn an_early_row_has_what_was_found_so_far() {
    let stream = browser().records(1 << 14);
    let limits = Limits {
        early_packets: Some(1),
        ..Limits::default()
    };
    let frames = [
        sent(ACK, 1, &stream[..1000]),
        sent(ACK, 1001, &stream[1000..]),
    ];
    let (rows, gaps) = flows(&frames, limits);
    let hellos: Vec<_> = rows
        .iter()
        .map(|row| row.contents.hello().is_some())
        .collect();
    assert_eq!((hellos, gaps), (vec![false, true], 0));
}
