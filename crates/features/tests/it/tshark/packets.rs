//! Hard captures: from the IP header on.

use std::net::SocketAddr;

use packet::build::{self, Builder, Checksum, Extension};
use packet::pcap::ETHERNET;
use packet::protocol;

use super::capture::{Capture, L3, V4, V6, at, from, ip, plain, tcp, udp};

pub(super) fn extensions() -> Capture {
    const ATOMIC: Extension = Extension::Fragment {
        offset: 0,
        more: false,
    };
    let mut capture = Capture::new("extension headers", ETHERNET);
    let mut n = 0;
    for extension in [
        Extension::HopByHop(0),
        Extension::DestinationOptions(0),
        Extension::DestinationOptions(15),
        Extension::Routing(0),
        Extension::Authentication(4),
        ATOMIC,
    ] {
        for count in [1, 2, 8, 64, 400] {
            for builder in [tcp(n, V6), udp(n, V6)] {
                let flood = (0..count).fold(builder, |packet, _| packet.extension(extension));
                capture.add(flood.frame());
            }
            n += 1;
        }
    }
    let chain = tcp(n, V6)
        .extension(Extension::HopByHop(1))
        .extension(Extension::Routing(2))
        .extension(ATOMIC)
        .extension(Extension::DestinationOptions(0))
        // tshark looks for another option behind one-byte padding, even where nothing is.
        .extension(Extension::Authentication(4));
    let whole = chain.frame();
    (0..whole.len()).for_each(|kept| capture.add_cut(&whole, kept));
    // A payload length that ends within the chain.
    for length in 1..=u8::try_from(whole.len() - L3 - 40).expect("a short one") {
        let mut frame = whole.clone();
        (frame[L3 + 4], frame[L3 + 5]) = (0, length);
        capture.add(frame);
    }
    capture
}

pub(super) fn fragments() -> Capture {
    let mut capture = Capture::new("fragments", ETHERNET);
    for to in [V4, V6] {
        let datagram = |n: usize| {
            [
                fragment(n, to, 0, true),
                fragment(n, to, 5, true),
                fragment(n, to, 9, false),
            ]
        };
        capture.extend(datagram(0));
        // Out of order, twice, and with gaps.
        let [first, middle, last] = datagram(1);
        capture.extend([&last, &middle, &first, &first, &middle].map(Clone::clone));
        let [first, _, last] = datagram(2);
        capture.extend([first, last]);
        let [_, middle, last] = datagram(3);
        capture.extend([last, middle]);
        // Overlapping.
        let overlapping = [(0, true), (1, true), (3, true), (4, false)];
        capture.extend(overlapping.map(|(offset, more)| fragment(4, to, offset, more)));
        // Of another protocol, between the same hosts, with the same identification.
        capture.add(
            as_fragment(tcp(0, to), to, 0, true)
                .identification(7)
                .frame(),
        );
        capture.add(
            as_fragment(echo(0, to), to, 0, true)
                .identification(7)
                .frame(),
        );
        // A first fragment without a whole header.
        for bytes in 0..24 {
            let tiny = build::other(from(5, to).ip(), at(to).ip(), protocol::TCP);
            let tiny = tiny.payload(vec![0x50; bytes]);
            capture.add(as_fragment(tiny, to, 0, true).identification(8).frame());
        }
    }
    capture
}

fn fragment(n: usize, to: &str, offset: u16, more: bool) -> Vec<u8> {
    let builder = if offset == 0 {
        udp(n, to).payload([0; 32])
    } else {
        build::other(from(n, to).ip(), at(to).ip(), protocol::UDP).payload([0; 32])
    };
    as_fragment(builder, to, offset, more)
        .identification(7)
        .frame()
}

fn as_fragment(builder: Builder, to: &str, offset: u16, more: bool) -> Builder {
    if at(to).is_ipv4() {
        builder.fragment(offset, more)
    } else {
        builder.extension(Extension::Fragment { offset, more })
    }
}

pub(super) fn echo(n: usize, to: &str) -> Builder {
    build::echo(from(n, to).ip(), at(to).ip()).payload([0; 30])
}

/// Frames with and without options, and with an extension header.
fn shapes() -> Vec<Vec<u8>> {
    let mut shapes = plain();
    shapes.push(build::tcp(from(0, V4), at(V4), 2, 3).payload([0; 9]));
    shapes.push(build::tcp(from(0, V6), at(V6), 2, 3).extension(Extension::Routing(0)));
    shapes.push(udp(0, V4).options(3));
    shapes.push(echo(0, V4));
    shapes.push(echo(0, V6));
    shapes.push(build::other(ip("10.1.0.0"), ip("10.0.0.2"), protocol::ESP).payload([0; 20]));
    shapes.iter().map(Builder::frame).collect()
}

pub(super) fn cut_off() -> Capture {
    let mut capture = Capture::new("cut off", ETHERNET);
    for whole in shapes() {
        (0..=whole.len()).for_each(|kept| capture.add_cut(&whole, kept));
    }
    capture
}

/// As if the wire had carried no more.
pub(super) fn too_short() -> Capture {
    let mut capture = Capture::new("too short", ETHERNET);
    for whole in shapes() {
        capture.extend((0..whole.len()).map(|kept| whole[..kept].to_vec()));
    }
    capture
}

pub(super) fn lies() -> Capture {
    let mut capture = Capture::new("lies", ETHERNET);
    let mut n = 0;
    let mut sweep = |make: fn(usize, &str) -> Builder, to, byte: usize, values: &[u8]| {
        for value in values {
            let mut frame = make(n, to).frame();
            frame[L3 + byte] = *value;
            capture.add(frame);
            n += 1;
        }
    };
    let lengths: Vec<u8> = (0..100).collect();
    let nibbles = |low: u8| (0..16).map(|high| high << 4 | low).collect::<Vec<u8>>();
    for make in [tcp, udp] {
        // Total length, header length, version; payload length, version.
        sweep(make, V4, 3, &lengths);
        sweep(make, V4, 0, &(0x40..0x50).collect::<Vec<u8>>());
        sweep(make, V4, 0, &nibbles(5));
        sweep(make, V6, 5, &lengths);
        sweep(make, V6, 0, &nibbles(0));
        // An IP length beyond the frame.
        sweep(make, V4, 2, &[1, 0xff]);
        sweep(make, V6, 4, &[1, 0xff]);
    }
    // The TCP header's length, the UDP datagram's.
    sweep(tcp, V4, 20 + 12, &nibbles(0));
    sweep(tcp, V6, 40 + 12, &nibbles(0));
    sweep(udp, V4, 20 + 5, &lengths);
    sweep(udp, V6, 40 + 5, &lengths);
    for checksum in [Checksum::Absent, Checksum::Partial, Checksum::Bad] {
        plain()
            .into_iter()
            .for_each(|builder| capture.add(builder.checksum(checksum).frame()));
    }
    capture
}

pub(super) fn odd() -> Capture {
    let mut capture = Capture::new("odd conversations", ETHERNET);
    for to in [V4, V6] {
        let (client, server) = (from(0, to), at(to));
        // Every combination of flags, and only one side.
        (0..=255).for_each(|flags| capture.add(build::tcp(server, client, flags, 0).frame()));
        let zero = |address: SocketAddr| SocketAddr::new(address.ip(), 0);
        let swapped = SocketAddr::new(client.ip(), server.port());
        let back = SocketAddr::new(server.ip(), client.port());
        for (one, other) in [
            (client, client),
            (client, swapped),
            (swapped, back),
            (back, swapped),
            (zero(client), zero(server)),
        ] {
            capture.add(build::tcp(one, other, 2, 0).frame());
            capture.add(build::udp(one, other).frame());
        }
        capture.extend([6, 200].map(|padding| tcp(1, to).payload([]).padding(padding).frame()));
        for number in [2, 33, 47, 50, 59, 89, 108, 132, 136, 139, 253] {
            let other = build::other(client.ip(), server.ip(), number);
            capture.add(other.payload([0; 40]).frame());
        }
        quotes(&mut capture, to);
    }
    let everyone = build::udp(at("0.0.0.0:68"), at("255.255.255.255:67"));
    capture.add(everyone.frame());
    // Authentication headers are opened in IPv4 as well.
    let segment = tcp(2, V4).frame().split_off(L3 + 20);
    let authenticated = [&[6, 4][..], &[0; 22], &segment].concat();
    let outer = build::other(from(2, V4).ip(), at(V4).ip(), protocol::AUTHENTICATION);
    capture.add(outer.payload(authenticated).frame());
    capture
}

/// ICMP errors, and what they quote.
fn quotes(capture: &mut Capture, to: &str) {
    let quoted = tcp(3, to).frame().split_off(L3);
    let (number, kinds) = match at(to) {
        SocketAddr::V4(_) => (protocol::ICMP, [3, 5, 11, 12]),
        SocketAddr::V6(_) => (protocol::ICMPV6, [1, 2, 3, 4]),
    };
    for kind in kinds {
        let error = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        let error = build::other(from(4, to).ip(), at(to).ip(), number).payload(error);
        capture.add(error.frame());
    }
    capture.add(echo(4, to).frame());
}

pub(super) fn jumbograms() -> Capture {
    let mut capture = Capture::new("jumbograms", ETHERNET);
    let segment = [&tcp(0, V6).frame()[L3 + 40..], &[0; 70_000]].concat();
    let payload = u32::try_from(segment.len() + 8).expect("not that long");
    for (n, length) in [payload, payload + 1000, 65_536, 65_535, 100, 0]
        .into_iter()
        .enumerate()
    {
        let frame = jumbogram(n, 0, length, &segment);
        capture.add_cut(&frame, 200);
        capture.add(frame);
    }
    // With an ordinary length the option says nothing.
    capture.add(jumbogram(10, 60, payload, &segment[..52]));
    // No length at all: nothing behind the header.
    for builder in [tcp(11, V6), udp(12, V6)] {
        let mut frame = builder.frame();
        (frame[L3 + 4], frame[L3 + 5]) = (0, 0);
        capture.add(frame);
    }
    capture
}

fn jumbogram(n: usize, declared: u16, length: u32, segment: &[u8]) -> Vec<u8> {
    const JUMBO: [u8; 4] = [protocol::TCP, 0, 0xc2, 4];
    let mut frame = tcp(n, V6).frame();
    frame.truncate(L3 + 40);
    frame[L3 + 4..L3 + 6].copy_from_slice(&declared.to_be_bytes());
    frame[L3 + 6] = protocol::HOP_BY_HOP;
    [&frame[..], &JUMBO, &length.to_be_bytes(), segment].concat()
}

pub(super) fn tunnels() -> Capture {
    const GRE: u8 = 47;
    let mut capture = Capture::new("tunnels", ETHERNET);
    let frame = build::tcp(at("10.9.0.1:80"), at("10.9.0.2:81"), 0x10, 0).payload([0; 30]);
    let (frame, v4) = (frame.frame(), frame.frame().split_off(L3));
    let v6 = build::udp(at("[fd09::1]:80"), at("[fd09::2]:81")).payload([0; 30]);
    let v6 = v6.frame().split_off(L3);
    let header = |start: &[u8], inner: &[u8]| [start, inner].concat();
    for to in [V4, V6] {
        let (client, server) = (from(0, to), at(to));
        for (number, payload) in [
            (4, v4.clone()),
            (41, v6.clone()),
            (GRE, header(&[0, 0, 8, 0], &v4)),
            (GRE, header(&[0, 0, 0x86, 0xdd], &v6)),
            (GRE, header(&[0x20, 0, 0x65, 0x58, 0, 0, 1, 0], &frame)),
            (
                GRE,
                header(&[0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], &v4),
            ),
        ] {
            let outer = build::other(client.ip(), server.ip(), number).payload(payload);
            let whole = outer.frame();
            (L3..=whole.len()).for_each(|kept| capture.add_cut(&whole, kept));
            capture.add(as_fragment(outer, to, 0, true).frame());
        }
        let [high, low] = u16::try_from(v4.len()).expect("a short one").to_be_bytes();
        for (port, payload) in [
            (4789, header(&[8, 0, 0, 0, 0, 0, 1, 0], &frame)),
            (6081, header(&[0, 0, 0x65, 0x58, 0, 0, 1, 0], &frame)),
            (2152, header(&[0x30, 0xff, high, low, 0, 0, 0, 5], &v4)),
            (3544, v6.clone()),
        ] {
            let server = SocketAddr::new(server.ip(), port);
            capture.add(build::udp(client, server).payload(payload).frame());
        }
    }
    capture
}
