//! A ClientHello in pieces: records, segments, retransmissions, gaps.

use features::payload::tls::{Accumulator, MAX_HELLO, Reason, Search, State};

use super::hello::{Hello, browser, server_name};

/// Feeds segments of a size, from a sequence number on, and answers the first that is not `More`.
fn in_segments(first: u32, stream: &[u8], size: usize) -> State {
    let mut accumulator = Accumulator::new(first);
    let mut sequence = first;
    for segment in stream.chunks(size) {
        match accumulator.feed(sequence, segment) {
            State::More => {}
            other => return other,
        }
        sequence = sequence.wrapping_add(u32::try_from(segment.len()).unwrap());
    }
    State::More
}

#[test]
fn pieces_of_any_size_give_the_same_hello() {
    let whole = State::Found(browser().read());
    for fragment in [1, 3, 4, 5, 100, 1000, 1 << 14] {
        let stream = browser().records(fragment);
        for size in [1, 2, 5, 7, 536, 1460, stream.len()] {
            // The sequence number wraps within.
            assert_eq!(
                in_segments(u32::MAX - 40, &stream, size),
                whole,
                "{fragment} {size}"
            );
        }
    }
}

#[test]
fn repeated_bytes_are_passed_over_and_nothing_is_read_twice() {
    let stream = browser().records(1 << 14);
    let mut accumulator = Accumulator::new(100);
    assert_eq!(accumulator.feed(100, &stream[..700]), State::More);
    assert_eq!(accumulator.feed(100, &stream[..700]), State::More);
    assert_eq!(accumulator.feed(99, &[0]), State::More, "before the start");
    assert_eq!(accumulator.feed(799, &[0]), State::More, "a keepalive");
    assert_eq!(accumulator.feed(800, &[]), State::More);
    let found = accumulator.feed(600, &stream[500..]);
    assert_eq!(found, State::Found(browser().read()));
}

#[test]
fn a_gap_ends_the_search() {
    let stream = browser().records(1 << 14);
    let mut accumulator = Accumulator::new(100);
    assert_eq!(accumulator.feed(100, &stream[..700]), State::More);
    let after = accumulator.feed(801, &stream[701..]);
    assert_eq!(after, State::GivenUp(Reason::Gap));
    let early = Accumulator::new(100).feed(800, &stream[700..]);
    assert_eq!(early, State::GivenUp(Reason::Gap));
}

#[test]
fn other_streams_are_refused_with_the_first_byte_that_differs() {
    let refused = |stream: &[u8], at: usize| {
        let mut accumulator = Accumulator::new(0);
        assert_eq!(
            accumulator.feed(0, &stream[..at]),
            State::More,
            "{stream:?}"
        );
        let sequence = u32::try_from(at).unwrap();
        match accumulator.feed(sequence, &stream[at..=at]) {
            State::GivenUp(reason) => reason,
            other => panic!("{stream:?}: {other:?}"),
        }
    };
    for (stream, at) in [
        (&b"GET / HTTP/1.1"[..], 0),
        (&[23, 3, 3, 0, 50], 0),
        (&[22, 2, 3, 0, 50], 1),
        (&[22, 3, 5, 0, 50], 2),
        (&[22, 3, 3, 0, 0], 4),
        (&[22, 3, 3, 0x40, 1], 4),
        (&[22, 3, 3, 0, 50, 2], 5),
        (&[22, 3, 3, 0, 50, 1, 0, 0, 46, 9], 9),
    ] {
        assert_eq!(refused(stream, at), Reason::Other);
    }
    // A length of 16 KiB with its header is the last that is followed.
    assert_eq!(
        refused(&[22, 3, 3, 1, 0, 1, 0, 0x3f, 0xfd], 8),
        Reason::TooLong
    );
    let last = [22, 3, 3, 1, 0, 1, 0, 0x3f, 0xfc, 3];
    assert_eq!(Accumulator::new(0).feed(0, &last), State::More);
}

#[test]
fn what_contradicts_itself_is_malformed() {
    let mut stream = browser().records(1 << 14);
    // The extensions' length, after type, length, version, random, session, 16 ciphers, compression.
    let at = 5 + 4 + 2 + 32 + 1 + 2 + 32 + 2;
    stream[at] ^= 1;
    assert_eq!(
        in_segments(0, &stream, 1460),
        State::GivenUp(Reason::Malformed)
    );
    let mut broken = browser().records(100);
    broken[105] = 23;
    assert_eq!(
        in_segments(0, &broken, 1460),
        State::GivenUp(Reason::Malformed)
    );
}

#[test]
fn names_that_are_absent_empty_or_strange() {
    let named = |extension| Hello {
        extensions: vec![extension],
        ..browser()
    };
    for (extension, sni) in [
        (server_name(b"a\nb\\.example"), Some("a\\010b\\\\.example")),
        (server_name(b""), None),
        ((0, vec![]), None),
        ((0, vec![0, 9, 0, 0, 1, b'x']), None),
        ((0, vec![0, 4, 7, 0, 1, b'x']), None),
        ((0, vec![0, 8, 7, 0, 1, b'x', 0, 0, 1, b'Y']), Some("y")),
    ] {
        let read = named(extension).read();
        assert_eq!(read.sni.as_deref(), sni);
        assert_eq!(&read.ja4[3..4], "d", "the extension is there");
    }
}

#[test]
fn a_search_answers_once_and_lets_its_memory_go() {
    let stream = browser().records(1 << 14);
    let mut search = Search::default();
    assert_eq!(search.feed(None, 9, &[]), None);
    assert!(matches!(search, Search::Ahead));
    assert_eq!(search.feed(None, 9, &stream[..1000]), None);
    assert!(matches!(search, Search::Gathering(_)));
    assert_eq!(
        search.feed(None, 1009, &stream[1000..]),
        Some(Ok(browser().read()))
    );
    assert!(matches!(search, Search::Over));
    assert_eq!(search.feed(None, 9, &stream), None);
    let mut late = Search::default();
    assert_eq!(late.feed(Some(8), 9, &stream), Some(Err(Reason::Gap)));
    assert!(size_of::<Search>() <= 16, "every flow has two");
}

#[test]
fn the_longest_hello_is_found() {
    let mut hello = browser();
    let missing = MAX_HELLO - hello.message().len();
    for (kind, data) in &mut hello.extensions {
        if *kind == 0x0015 {
            data.resize(data.len() + missing, 0);
        }
    }
    assert_eq!(hello.message().len(), MAX_HELLO);
    let found = in_segments(0, &hello.records(1 << 14), 1460);
    assert_eq!(found, State::Found(hello.read()));
}
