//! ClientHellos in QUIC: packets made by hand, in every order, and what a flow keeps of them.

use std::net::SocketAddr;

use features::counters::Counters;
use features::flow::Flow;
use features::payload::quic::{Connection, MAX_DATAGRAMS, MAX_PACKETS};
use features::payload::tls::{ClientHello, MAX_HELLO};
use features::{Extractor, Options};
use packet::build;
use packet::pcap::{ETHERNET, Frame};
use proptest::prelude::*;
use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Okm, Prk, Salt};

use super::fuzz::{damaged, for_ten_seeds};
use super::hello::{Hello, alpn, browser};

/// A version with its salt, its labels and the number of its Initial packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    number: u32,
    salt: [u8; 20],
    label: &'static str,
    kind: u8,
}

pub(crate) const V1: Version = Version {
    number: 1,
    salt: *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
    label: "quic",
    kind: 0,
};

pub(crate) const V2: Version = Version {
    number: 0x6b33_43cf,
    salt: *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
    label: "quicv2",
    kind: 1,
};

/// Reserved to exercise version negotiation; this client protects its packets in its own way.
const UNKNOWN_VERSION: Version = Version {
    number: 0x1a2a_3a4a,
    salt: [7; 20],
    ..V1
};

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(secret: &Prk, label: &str, length: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let info = [0, byte(length), byte(label.len())];
    let info = [&info[..], label.as_bytes(), &[0]];
    let mut key = vec![0; length];
    let expanded: Okm<'_, Length> = secret.expand(&info, Length(length)).unwrap();
    expanded.fill(&mut key).unwrap();
    key
}

/// A client's Initial packet.
#[derive(Clone, Debug)]
pub(crate) struct Initial {
    pub(crate) version: Version,
    /// The connection ID that the keys follow from.
    pub(crate) origin: Vec<u8>,
    pub(crate) destination: Vec<u8>,
    pub(crate) token: Vec<u8>,
    pub(crate) number: u32,
    pub(crate) frames: Vec<u8>,
}

impl Initial {
    pub(crate) fn new(version: Version, destination: &[u8], frames: Vec<u8>) -> Self {
        Self {
            version,
            origin: destination.to_vec(),
            destination: destination.to_vec(),
            token: Vec::new(),
            number: 0,
            frames,
        }
    }

    pub(crate) fn seal(&self) -> Vec<u8> {
        let initial = Salt::new(HKDF_SHA256, &self.version.salt).extract(&self.origin);
        let secret = Prk::new_less_safe(HKDF_SHA256, &expand(&initial, "client in", 32));
        let of =
            |what: &str, length| expand(&secret, &format!("{} {what}", self.version.label), length);
        let mut header = vec![0xc3 | self.version.kind << 4];
        header.extend(self.version.number.to_be_bytes());
        for id in [&self.destination[..], b"client"] {
            header.push(byte(id.len()));
            header.extend(id);
        }
        header.extend(varint(self.token.len()));
        header.extend(&self.token);
        header.extend(varint(4 + self.frames.len() + 16));
        let number_at = header.len();
        header.extend(self.number.to_be_bytes());
        let mut nonce: [u8; 12] = of("iv", 12).try_into().unwrap();
        for (byte, number) in nonce[8..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &of("key", 16)).unwrap());
        let mut payload = self.frames.clone();
        key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut payload)
            .unwrap();
        let protection = HeaderProtectionKey::new(&AES_128, &of("hp", 16)).unwrap();
        let [first, number @ ..] = protection.new_mask(&payload[..16]).unwrap();
        header[0] ^= first & 0x0f;
        for (byte, mask) in header[number_at..].iter_mut().zip(number) {
            *byte ^= mask;
        }
        [header, payload].concat()
    }
}

fn byte(number: usize) -> u8 {
    number.try_into().unwrap()
}

fn varint(number: usize) -> [u8; 4] {
    (u32::try_from(number).unwrap() | 0x8000_0000).to_be_bytes()
}

/// A CRYPTO frame with a part of a message.
fn crypto(message: &[u8], at: usize, length: usize) -> Vec<u8> {
    let at = at.min(message.len());
    let data = &message[at..(at + length).min(message.len())];
    [&[6][..], &varint(at), &varint(data.len()), data].concat()
}

fn whole(message: &[u8]) -> Vec<u8> {
    let mut frames = crypto(message, 0, message.len());
    frames.resize(frames.len().max(1162), 0);
    frames
}

/// A message in packets of 800 bytes, in two frames each, the second before the first; they overlap.
fn in_packets(message: &[u8], version: Version, destination: &[u8]) -> Vec<Initial> {
    let packet = |at| {
        let mut frames = vec![2, 0, 0, 0, 0, 1];
        frames.extend(crypto(message, at + 400, 400));
        frames.push(0);
        frames.extend(crypto(message, at, 410));
        Initial::new(version, destination, frames)
    };
    (0..message.len()).step_by(800).map(packet).collect()
}

fn hello() -> ClientHello {
    let over_tcp = browser().read();
    ClientHello {
        ja4: over_tcp.ja4.replacen('t', "q", 1),
        ..over_tcp
    }
}

/// Feeds the client's datagrams.
fn fed<'a>(datagrams: impl IntoIterator<Item = &'a Vec<u8>>) -> Connection {
    let mut datagrams = datagrams.into_iter().peekable();
    let mut connection = Connection::new(datagrams.peek().unwrap()).unwrap();
    for datagram in datagrams {
        connection.feed(0, datagram);
    }
    connection
}

/// The version negotiation packet and the Retry of a server.
fn version_negotiation() -> Vec<u8> {
    [
        &[0xc0, 0, 0, 0, 0, 6][..],
        b"client",
        &[8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1],
    ]
    .concat()
}

fn retry() -> Vec<u8> {
    [
        &[0xf0, 0, 0, 0, 1, 6][..],
        b"client",
        &[8],
        b"retried!",
        b"token",
        &[9; 16],
    ]
    .concat()
}

/// A client's datagrams and the version that they end with.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    version: u32,
    pub(crate) datagrams: Vec<Vec<u8>>,
}

/// Each has the browser's hello, and a connection ID of its own.
pub(crate) fn cases() -> Vec<Case> {
    let message = browser().message();
    let single = |version, id: &[u8]| Initial::new(version, id, whole(&message)).seal();
    let two = |id: &[u8]| {
        let [first, second] = in_packets(&message, V1, id).try_into().unwrap();
        (first.seal(), second)
    };
    let mut cases = Vec::new();
    let mut add = |name, version: Version, datagrams: Vec<Vec<u8>>| {
        let version = version.number;
        cases.push(Case {
            name,
            version,
            datagrams,
        });
    };
    add("version 1", V1, vec![single(V1, b"version1")]);
    add("version 2", V2, vec![single(V2, b"version2")]);
    add("ID of 20 bytes", V1, vec![single(V1, &[7; 20])]);
    add("no ID", V1, vec![single(V1, b"")]);
    let (first, second) = two(b"in order");
    add("in order", V1, vec![first, second.seal()]);
    let (first, second) = two(b"disorder");
    add("out of order", V1, vec![second.seal(), first]);
    let (first, second) = two(b"repeated");
    add("repeated", V1, vec![first.clone(), first, second.seal()]);
    let (first, second) = two(b"coalesce");
    add("coalesced", V1, vec![[first, second.seal()].concat()]);
    let early = |id: &[u8; 8]| [&[0xd0, 0, 0, 0, 1, 8][..], id, &[0, 20], &[5; 20]].concat();
    let (first, second) = two(b"behind 0");
    let datagram = [early(b"behind 0"), first, second.seal()].concat();
    add("behind 0-RTT", V1, vec![datagram]);
    let (first, second) = two(b"0RTT 1st");
    add(
        "after 0-RTT",
        V1,
        vec![early(b"0RTT 1st"), first, second.seal()],
    );
    // The client has taken up the server's connection ID, which needs no other keys.
    let (first, second) = two(b"of a client");
    let destination = b"of a server".to_vec();
    add(
        "server's ID",
        V1,
        vec![
            first,
            Initial {
                destination,
                ..second
            }
            .seal(),
        ],
    );
    let (first, second) = two(b"friends'");
    let datagram = [first, single(V1, b"a stranger's")].concat();
    add("another ID behind", V1, vec![datagram, second.seal()]);
    let (first, _) = two(b"try this");
    let token = b"token".to_vec();
    let retried = Initial {
        token,
        ..Initial::new(V1, b"retried!", whole(&message))
    };
    add("after a Retry", V1, vec![first, retried.seal()]);
    let reserved = single(UNKNOWN_VERSION, b"reserved");
    add(
        "after a version negotiation",
        V1,
        vec![reserved, single(V1, b"negotiated")],
    );
    let (first, second) = two(b"upgraded");
    let version = V2;
    add(
        "upgraded to version 2",
        V2,
        vec![first, Initial { version, ..second }.seal()],
    );
    cases
}

#[test]
fn hellos_in_every_form_are_found() {
    for Case {
        name,
        version,
        datagrams,
    } in cases()
    {
        let connection = fed(&datagrams);
        assert_eq!(connection.hello(), Some(&hello()), "{name}");
        assert_eq!(connection.version(), version, "{name}");
        assert_eq!(
            (connection.held(), connection.has_gap()),
            (0, false),
            "{name}"
        );
        assert!(connection.is_over(0) && connection.is_over(1), "{name}");
    }
}

#[test]
fn the_server_ends_its_own_search() {
    let message = browser().message();
    let two = in_packets(&message, V1, b"original");
    let mut connection = fed([&two[0].seal()]);
    connection.feed(1, &Initial::new(V1, b"client", whole(&message)).seal());
    assert_eq!((connection.is_over(1), connection.hello()), (true, None));
    connection.feed(0, &two[1].seal());
    assert_eq!(connection.hello(), Some(&hello()));
    for answer in [version_negotiation(), retry()] {
        let mut connection =
            fed([&Initial::new(UNKNOWN_VERSION, b"original", whole(&message)).seal()]);
        connection.feed(1, &answer);
        connection.feed(0, &Initial::new(V1, b"retried!", whole(&message)).seal());
        assert_eq!(connection.hello(), Some(&hello()));
    }
}

#[test]
fn what_is_not_quic_costs_one_look() {
    let initial = Initial::new(V1, b"original", whole(&browser().message())).seal();
    let with = |at: usize, byte: u8| {
        let mut datagram = initial.clone();
        datagram[at] = byte;
        datagram
    };
    let short = Initial::new(UNKNOWN_VERSION, b"original", vec![0; 40]).seal();
    for datagram in [
        with(0, 0x43),
        with(4, 0),
        with(4, 2),
        short,
        vec![],
        vec![0xc0, 0, 0, 0, 1],
    ] {
        assert_eq!(Connection::new(&datagram), None);
    }
}

#[test]
fn a_missing_or_cut_packet_is_a_gap() {
    let message = browser().message();
    let two = in_packets(&message, V1, b"original");
    let mut half = fed([&two[0].seal()]);
    assert!(half.held() > 0);
    half.end(0);
    assert_eq!((half.hello(), half.has_gap(), half.held()), (None, true, 0));
    let whole = Initial::new(V1, b"original", whole(&message)).seal();
    let mut cut = fed([&whole[..600].to_vec()]);
    cut.end(0);
    assert_eq!((cut.hello(), cut.has_gap()), (None, true));
    // A client that closes has no hello, and none is missing.
    let close = Initial::new(V1, b"original", vec![0x1c, 0, 0, 1, b'x', 0, 0, 0]).seal();
    let mut closed = fed([&close]);
    closed.end(0);
    assert_eq!((closed.hello(), closed.has_gap()), (None, false));
}

#[test]
fn searches_have_an_end() {
    let noise = Initial {
        origin: b"unknown".to_vec(),
        ..Initial::new(V1, b"original", vec![0; 1162])
    }
    .seal();
    let padding = Initial::new(V1, b"original", vec![0; 1162]).seal();
    for (datagram, most) in [(noise, MAX_DATAGRAMS - 1), (padding, MAX_DATAGRAMS)] {
        let mut connection = Connection::new(&datagram).unwrap();
        let until_end = (1..=MAX_DATAGRAMS).find(|_| {
            connection.feed(0, &datagram);
            connection.is_over(0)
        });
        assert!(until_end.is_some_and(|datagrams| datagrams <= most));
        assert_eq!(connection.held(), 0);
    }
    let tiny = Initial::new(V1, b"original", vec![0; 4]).seal();
    for (packets, is_over) in [(usize::from(MAX_PACKETS), false), (200, true)] {
        assert_eq!(fed([&tiny.repeat(packets)]).is_over(0), is_over);
    }
    // Far apart, and too far.
    let scattered = (0..200)
        .flat_map(|piece| crypto(&[1; 800], 4 * piece, 1))
        .collect();
    let beyond = crypto(&[1; MAX_HELLO + 1], MAX_HELLO, 1);
    for frames in [scattered, beyond] {
        let connection = fed([&Initial::new(V1, b"original", frames).seal()]);
        assert!(connection.is_over(0) && connection.held() == 0);
    }
}

#[test]
fn protocols_are_listed() {
    for (protocols, expected) in [
        (&[&b"h3"[..], b"H3-29"][..], Some("h3,H3-29")),
        (&[b"a,b", b"\x0a"], Some("a\\044b,\\010")),
        (&[], None),
        (&[&[b'x'; 255], b"y"], Some(&*"x".repeat(255))),
    ] {
        let hello = Hello {
            version: 0x0303,
            ciphers: vec![1],
            extensions: vec![alpn(protocols)],
        };
        let connection = fed([&Initial::new(V1, b"original", whole(&hello.message())).seal()]);
        let read = connection.hello().unwrap();
        assert_eq!(read.alpn.as_deref(), expected);
    }
}

/// The flows of datagrams between one client and its server, with the account; `true` is the client's.
fn flows(datagrams: &[(bool, Vec<u8>)]) -> (Vec<Flow>, Counters) {
    let ends: [SocketAddr; 2] = [([192, 0, 2, 1], 4000).into(), ([192, 0, 2, 2], 8443).into()];
    let mut rows = Vec::new();
    let mut extractor = Extractor::new(&Options::default(), |flow| rows.push(*flow));
    for (is_client, datagram) in datagrams {
        let [from, to] = [usize::from(!is_client), usize::from(*is_client)];
        let bytes = build::udp(ends[from], ends[to])
            .payload(&datagram[..])
            .frame();
        extractor.frame(&Frame {
            timestamp_ns: 1,
            original_length: u32::try_from(bytes.len()).unwrap(),
            link_type: ETHERNET,
            bytes: &bytes,
        });
    }
    let counters = extractor.finish();
    (rows, counters)
}

#[test]
fn a_flow_has_the_hello_of_either_direction() {
    let message = browser().message();
    let [first, second] = [0, 1].map(|at| in_packets(&message, V1, b"original")[at].seal());
    let server = Initial {
        origin: b"of the server".to_vec(),
        ..Initial::new(V1, b"client", vec![0; 1162])
    };
    let server = server.seal();
    for datagrams in [
        [
            (true, first.clone()),
            (false, server.clone()),
            (true, second.clone()),
        ],
        [
            (false, server.clone()),
            (true, first.clone()),
            (true, second.clone()),
        ],
        [
            (false, b"short".to_vec()),
            (true, second),
            (true, first.clone()),
        ],
    ] {
        let (rows, counters) = flows(&datagrams);
        let contents = &rows[0].contents;
        assert_eq!(contents.quic().and_then(Connection::hello), Some(&hello()));
        assert_eq!((rows.len(), contents.hello()), (1, None));
        let exported = counters.exported;
        assert_eq!((exported.quic_without_hello, exported.stream_gaps), (0, 0));
    }
    let (_, counters) = flows(&[(true, first), (false, server)]);
    let exported = counters.exported;
    assert_eq!((exported.quic_without_hello, exported.stream_gaps), (1, 1));
    let (rows, counters) = flows(&[(true, vec![0xc0; 1200])]);
    assert_eq!(rows[0].contents.quic(), None);
    assert_eq!(counters.exported.quic_without_hello, 0);
}

/// Frames damaged before they are sealed, datagrams damaged after, and noise.
#[test]
fn damage() {
    let check = |datagrams: &[Vec<u8>]| {
        let Some(mut connection) = datagrams.first().and_then(|first| Connection::new(first))
        else {
            return;
        };
        for (at, datagram) in datagrams.iter().enumerate() {
            connection.feed(at % 2, datagram);
            assert!(connection.held() <= 2 * (MAX_HELLO + 4096));
        }
        if let Some(hello) = connection.hello() {
            assert_eq!(hello.ja4.len(), 36);
        }
        connection.end(0);
        connection.end(1);
        assert_eq!(connection.held(), 0);
    };
    let message = browser().message();
    let packets = in_packets(&message, V1, b"original");
    let frames = damaged(packets[0].frames.clone());
    for_ten_seeds(&prop::collection::vec(frames, 1..3), |frames| {
        let seal = |frames| Initial::new(V1, b"original", frames).seal();
        check(&frames.into_iter().map(seal).collect::<Vec<_>>());
    });
    let datagram = damaged(packets.iter().flat_map(Initial::seal).collect());
    for_ten_seeds(&prop::collection::vec(datagram, 1..3), |datagrams| {
        check(&datagrams);
    });
    let noise = prop::collection::vec(any::<u8>(), 0..300);
    for_ten_seeds(&noise, |mut bytes| {
        bytes.splice(..0, [0xc0, 0, 0, 0, 1]);
        check(&[bytes]);
    });
}
