//! DNS messages made by hand.

use features::payload::dns::{over_tcp, over_udp};

const DNS: [u16; 2] = [40_000, 53];
const OTHER: [u16; 2] = [40_000, 8053];

/// A query for the address of a name on the wire.
pub(crate) fn question(name: &[u8]) -> Vec<u8> {
    let header = [0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], name, &[0, 1, 0, 1]].concat()
}

/// The same with an answer whose name points to the question, and an OPT record.
pub(crate) fn answered() -> Vec<u8> {
    let mut message = question(b"\x03WWW\x07eXample\x03com\0");
    message[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 1]);
    message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message
}

fn name(wire: &[u8]) -> Option<String> {
    over_udp(DNS, &question(wire))
}

#[test]
fn names_are_in_presentation_form() {
    for (wire, text) in [
        (&b"\x03www\x07Example\x03COM\0"[..], "www.example.com"),
        (b"\0", "."),
        (b"\x01*\x05_http\x04_tcp\x05local\0", "*._http._tcp.local"),
        (
            b"\x04a.b\\\x03c d\x02\xc3\xa9\0",
            "a\\.b\\\\.c\\032d.\\195\\169",
        ),
    ] {
        assert_eq!(name(wire).as_deref(), Some(text));
    }
}

#[test]
fn pointers_are_followed_within_the_message() {
    let ahead = [&question(b"\x03www\xc0\x16")[..], b"\x07example\0"].concat();
    assert_eq!(over_udp(DNS, &ahead).as_deref(), Some("www.example"));
    assert_eq!(name(b"\xc0\x0c"), None, "to itself");
    assert_eq!(name(b"\x01a\xc0\x0c"), None, "a loop that grows");
    assert_eq!(name(b"\xc0\x00"), None, "into the header");
    assert_eq!(name(b"\xc3\xff"), None, "beyond the message");
}

#[test]
fn what_is_no_name_gives_none() {
    let label = [&[63][..], &[b'x'; 63]].concat();
    let longest = [&label.repeat(3)[..], &[61], &[b'x'; 61], &[0]].concat();
    assert_eq!(longest.len(), 255);
    assert_eq!(name(&longest).unwrap().len(), 253);
    let longer = [&label.repeat(3)[..], &[62], &[b'x'; 62], &[0]].concat();
    assert_eq!(name(&longer), None);
    assert_eq!(name(b"\x40x\0"), None, "an extended label");
    assert_eq!(name(b"\x3fx\0"), None, "a label beyond the message");
    let mut unasked = question(b"\0");
    unasked[5] = 0;
    assert_eq!(over_udp(DNS, &unasked), None);
    assert_eq!(
        over_udp(DNS, &question(b"\0")[..16]),
        None,
        "the class is cut off"
    );
}

#[test]
fn elsewhere_a_message_must_be_whole() {
    let message = answered();
    let expected = Some("www.example.com");
    assert_eq!(over_udp(OTHER, &message).as_deref(), expected);
    for ports in [DNS, [5353, 5353], [5355, 9]] {
        assert_eq!(over_udp(ports, &message[..40]).as_deref(), expected);
    }
    for end in 0..message.len() {
        assert_eq!(over_udp(OTHER, &message[..end]), None);
    }
    assert_eq!(over_udp(OTHER, &[&message[..], &[0]].concat()), None);
    // Opcode, reserved bit, two questions, class of the question.
    for (at, byte) in [(2, 0x40), (3, 0x40), (5, 2), (32, 9)] {
        let mut changed = message.clone();
        changed[at] = byte;
        assert_eq!(over_udp(OTHER, &changed), None, "byte {at}");
    }
}

#[test]
fn netbios_is_not_dns() {
    let mut message = question(&[&[32][..], &[b'C'; 32], &[0]].concat());
    assert!(over_udp(OTHER, &message).is_some());
    let kind = message.len() - 3;
    message[kind] = 32;
    assert_eq!(over_udp(OTHER, &message), None);
}

#[test]
fn streams_announce_the_length() {
    let framed = |length: u16| [&length.to_be_bytes()[..], &answered()].concat();
    let length = u16::try_from(answered().len()).unwrap();
    let expected = Some("www.example.com");
    for ports in [DNS, OTHER] {
        assert_eq!(over_tcp(ports, &framed(length)).as_deref(), expected);
    }
    assert_eq!(over_tcp(DNS, &framed(length)[..36]).as_deref(), expected);
    assert_eq!(
        over_tcp(DNS, &framed(20)),
        None,
        "shorter than the question"
    );
    let two = framed(length).repeat(2);
    assert_eq!(over_tcp(DNS, &two).as_deref(), expected);
    assert_eq!(over_tcp(OTHER, &two), None);
    assert_eq!(over_tcp(OTHER, &framed(length + 1)), None);
}
