//! Retransmissions, segments out of order, windows of zero and round trips.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{ACK, FIN, MILLISECOND, SYN, Segment, capture, client, handshake, row, rows, server};

/// Bytes that the client sends after the handshake, which takes 2 ms.
fn bytes(from: u32, payload: usize) -> Segment {
    client(ACK, 101 + from, 101, payload)
}

/// Retransmissions and segments out of order of the client.
fn counts(segments: impl IntoIterator<Item = Segment>) -> [u64; 2] {
    let mut all = handshake();
    all.extend(segments);
    let row = row(&all);
    let names = ["fwd_retransmissions", "fwd_out_of_order_segments"];
    names.map(|name| row[name].as_u64().unwrap())
}

#[test]
fn a_segment_that_fills_a_gap_is_late_or_sent_again() {
    let gap = || [bytes(0, 100), bytes(200, 100)];
    let [first, third] = gap();
    for (name, expected, segments) in [
        ("in order", [0, 0], vec![bytes(0, 100), bytes(100, 100)]),
        ("seen before", [1, 0], vec![bytes(0, 100), bytes(0, 100)]),
        (
            "late",
            [0, 1],
            vec![first.clone(), third.clone(), bytes(100, 100)],
        ),
        (
            "later than a round trip",
            [1, 0],
            vec![
                first.clone(),
                third.clone(),
                bytes(100, 100).after(2 * MILLISECOND),
            ],
        ),
        (
            "acknowledged before",
            [1, 0],
            vec![
                first.clone(),
                third.clone(),
                server(ACK, 101, 401, 0).after(0),
                bytes(100, 100),
            ],
        ),
        (
            "more than the gap",
            [1, 0],
            vec![first.clone(), third.clone(), bytes(50, 150)],
        ),
        (
            "two parts of a gap",
            [0, 2],
            vec![
                first,
                third,
                bytes(150, 50).after(MILLISECOND / 2),
                bytes(100, 50).after(MILLISECOND / 2),
            ],
        ),
    ] {
        assert_eq!(counts(segments), expected, "{name}");
    }
}

#[test]
fn probes_are_no_retransmissions() {
    let keep_alive = [bytes(0, 100), bytes(99, 1), bytes(99, 0), bytes(100, 10)];
    assert_eq!(counts(keep_alive), [0, 0]);
    let closed = server(ACK, 101, 201, 0).window(0);
    let probes = [bytes(0, 100), closed, bytes(100, 1), bytes(100, 100)];
    assert_eq!(counts(probes), [0, 0]);
}

#[test]
fn syn_and_fin_are_sent_again_too() {
    let syn = client(SYN, 100, 0, 0);
    let fin = client(FIN | ACK, 101, 101, 0);
    let segments = [
        syn.clone(),
        syn,
        server(SYN | ACK, 100, 101, 0),
        client(ACK, 101, 101, 0),
        fin.clone(),
        fin,
    ];
    let row = row(&segments);
    assert_eq!(row["fwd_retransmissions"], 2);
    // The answer may be to either SYN.
    assert!(row["synack_rtt_us"].is_null());
    assert_eq!(row["ack_rtt_us"], 1000.0);
}

#[test]
fn more_gaps_than_are_kept_are_retransmissions_when_filled() {
    let mut segments: Vec<Segment> = (0..12)
        .map(|part| bytes(200 * part, 100).after(0))
        .collect();
    segments.extend((0..11).map(|part| bytes(200 * part + 100, 100).after(0)));
    assert_eq!(counts(segments), [3, 8]);
}

#[test]
fn sequence_numbers_go_on_after_the_greatest() {
    let first = u32::MAX - 50;
    let data = |from: u32| client(ACK, first.wrapping_add(1 + from), 101, 40);
    let row = row(&[
        client(SYN, first, 0, 0),
        server(SYN | ACK, 100, first.wrapping_add(1), 0),
        client(ACK, first.wrapping_add(1), 101, 0),
        data(0),
        data(80),
        data(40),
        data(0),
        server(ACK, 101, first.wrapping_add(121), 0),
        client(FIN | ACK, first.wrapping_add(121), 101, 0),
        server(FIN | ACK, 101, first.wrapping_add(122), 0),
    ]);
    let names = ["conn_state", "history"].map(|name| row[name].as_str().unwrap());
    assert_eq!(names, ["SF", "ShADTaFf"]);
    assert_eq!(row["fwd_retransmissions"], 1);
    assert_eq!(row["fwd_out_of_order_segments"], 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No segment is counted twice, whatever the flags and numbers are.
    #[test]
    fn arbitrary_segments(fields in vec((any::<[bool; 2]>(), any::<u8>(), 0..6_u32, 0..6_u32, 0..3_usize), 1..60)) {
        const NUMBERS: [u32; 6] = [0, 1, 100, 1 << 31, u32::MAX - 1, u32::MAX];

        let segments: Vec<Segment> = fields
            .into_iter()
            .map(|([from_client, is_closed], flags, sequence, acknowledgement, payload)| {
                let [sequence, acknowledgement] =
                    [sequence, acknowledgement].map(|index| NUMBERS[index as usize]);
                let segment = client(flags, sequence, acknowledgement, payload * 700);
                Segment { from_client, ..segment.window(u16::from(!is_closed)) }
            })
            .collect();
        for row in rows(&capture(&segments)) {
            for side in ["fwd", "bwd"] {
                let number = |name: &str| row[format!("{side}_{name}")].as_u64().unwrap();
                let odd = number("retransmissions") + number("out_of_order_segments");
                prop_assert!(odd <= number("packets"), "{row}");
                prop_assert!(number("zero_windows") <= number("packets"), "{row}");
            }
            prop_assert!(row["history"].as_str().is_none_or(|letters| letters.len() <= 101));
        }
    }
}

#[test]
fn windows_of_zero_are_counted_by_direction() {
    let mut segments = handshake();
    segments.extend([
        server(ACK, 101, 101, 0).window(0),
        server(ACK, 101, 101, 0).window(0),
        client(ACK, 101, 101, 0).window(0),
        server(FIN | ACK, 101, 101, 0).window(0),
    ]);
    let row = row(&segments);
    assert_eq!(
        (&row["fwd_zero_windows"], &row["bwd_zero_windows"]),
        (&1.into(), &2.into())
    );
}

#[test]
fn round_trips_by_handshake_and_by_timestamps() {
    let micro = MILLISECOND / 1000;
    let row = row(&[
        client(SYN, 100, 0, 0).stamped(10, 0),
        server(SYN | ACK, 100, 101, 0)
            .stamped(900, 10)
            .after(700 * micro),
        client(ACK, 101, 101, 0).stamped(11, 900).after(250 * micro),
        client(ACK, 101, 101, 10).stamped(12, 900).after(0),
        // The same value again measures nothing.
        client(ACK, 111, 101, 10)
            .stamped(12, 900)
            .after(100 * micro),
        server(ACK, 101, 121, 0).stamped(901, 12).after(400 * micro),
        server(ACK, 101, 121, 5).stamped(902, 12).after(10 * micro),
        client(ACK, 121, 106, 0).stamped(13, 902).after(150 * micro),
    ]);
    let expected = [
        ("synack_rtt_us", 700.0),
        ("ack_rtt_us", 250.0),
        // 700 and 500 us.
        ("fwd_rtt_min_us", 500.0),
        ("fwd_rtt_mean_us", 600.0),
        // 250 and 150 us.
        ("bwd_rtt_min_us", 150.0),
        ("bwd_rtt_mean_us", 200.0),
    ];
    for (name, expected) in expected {
        assert_eq!(row[name], expected, "{name}");
    }
}

#[test]
fn no_more_timestamps_wait_than_there_is_room_for() {
    let mut segments = handshake();
    // One each millisecond; the eighth one waits for 93 ms, and those behind it are not taken.
    segments.extend((0..100).map(|part| bytes(part, 1).stamped(part, 0)));
    segments.push(server(ACK, 101, 201, 0).stamped(7, 7).after(0));
    segments.push(server(ACK, 101, 201, 0).stamped(7, 99));
    let row = row(&segments);
    assert_eq!(row["fwd_rtt_min_us"], 92_000.0);
    assert_eq!(row["fwd_rtt_mean_us"], 92_000.0);
}
