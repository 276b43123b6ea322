//! Frames of every kind that the dissectors tell apart, as bytes.

use std::net::SocketAddr;

use packet::build::{self, Builder, Extension};
use packet::pcap::OwnedFrame;
use packet::{ethertype, protocol};

use super::captured;

const SECOND: i64 = 1_000_000_000;

pub(crate) fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

fn v4() -> Builder {
    build::udp(at("192.0.2.1:5000"), at("198.51.100.7:5004")).payload([7; 41])
}

fn v6() -> Builder {
    build::udp(at("[2001:db8::1]:5000"), at("[2001:db8::2]:5004")).payload([7; 41])
}

fn tcp(flags: u8, options: u8) -> Builder {
    build::tcp(at("192.0.2.1:9"), at("192.0.2.2:443"), flags, options)
}

/// What the builder makes.
fn built() -> Vec<Builder> {
    let fragment = |offset, more| Extension::Fragment { offset, more };
    let chain = |length: u8, kind: Extension| (0..length).fold(v6(), |b, _| b.extension(kind));
    let v6_hosts = || (at("[2001:db8::1]:1"), at("[2001:db8::2]:443"));
    vec![
        v4(),
        v4().tos(0xb9).ttl(1).identification(77),
        v4().options(1).vlan(5),
        v4().options(10).tag(ethertype::QINQ, 0x6001).vlan(0x1fff),
        (0..19).fold(v4(), |frame, tag| frame.vlan(tag)),
        (0..20).fold(v4(), |frame, tag| frame.vlan(tag)),
        v4().tag(0x9100, 7),
        v4().identification(9).fragment(0, true),
        v4().identification(9).fragment(3, true),
        v4().identification(9).fragment(9, false).payload([1; 3]),
        v4().identification(10).fragment(9, false),
        v4().padding(20),
        v6(),
        v6().tos(0xff).flow_label(0xf_ffff).vlan(9),
        v6().extension(Extension::HopByHop(0)),
        v6().extension(Extension::HopByHop(3))
            .extension(Extension::Routing(2)),
        v6().extension(Extension::Authentication(4))
            .extension(fragment(0, false)),
        v6().extension(fragment(0, true))
            .extension(Extension::DestinationOptions(0)),
        v6().extension(Extension::HopByHop(0))
            .extension(fragment(5, true)),
        v6().extension(fragment(5, false))
            .extension(Extension::Routing(255)),
        chain(20, Extension::DestinationOptions(1)),
        chain(6, Extension::Routing(60)),
        tcp(0x02, 10),
        tcp(0x12, 5).payload([0; 5]),
        tcp(0x11, 0),
        build::tcp(v6_hosts().0, v6_hosts().1, 0xff, 10),
        build::echo(at("192.0.2.1:0").ip(), at("192.0.2.2:0").ip()).payload([0; 56]),
        build::echo(v6_hosts().0.ip(), v6_hosts().1.ip()).vlan(3),
        other(58),
        other(2),
        other(50),
        other(132),
        other(33),
        other(136),
        build::other(v6_hosts().0.ip(), v6_hosts().1.ip(), protocol::ICMP).payload([1; 30]),
        build::other(v6_hosts().0.ip(), v6_hosts().1.ip(), 59),
        build::other(v6_hosts().0.ip(), v6_hosts().1.ip(), 140).payload([17, 0, 0, 0, 0, 0, 0, 0]),
        // Of the first fragment with destination options above.
        build::other(
            v6_hosts().0.ip(),
            v6_hosts().1.ip(),
            protocol::DESTINATION_OPTIONS,
        )
        .extension(fragment(8, false))
        .payload([3; 8]),
    ]
}

fn other(protocol: u8) -> Builder {
    build::other(at("192.0.2.1:0").ip(), at("192.0.2.2:0").ip(), protocol).payload([5; 24])
}

/// A frame whose IP packet is announced by these bytes in place of its EtherType.
fn announced(by: &[u8], frame: &Builder) -> Vec<u8> {
    let frame = frame.frame();
    [&frame[..12], by, &frame[14..]].concat()
}

/// The IPv4 packet of a frame with a TCP header that has these options.
fn with_options(flags: u8, options: &[u8]) -> Vec<u8> {
    let words = u8::try_from(options.len() / 4).unwrap();
    let mut frame = tcp(flags, words).payload([3; 9]).frame();
    frame[54..54 + options.len()].copy_from_slice(options);
    frame
}

/// A jumbogram that declares this length, and what stands for its payload.
fn jumbo(options: &[u8; 14], length: usize) -> Vec<u8> {
    let mut frame = v6()
        .extension(Extension::HopByHop(1))
        .payload(vec![1; length])
        .frame();
    frame[18..20].copy_from_slice(&[0, 0]);
    frame[56..70].copy_from_slice(options);
    frame
}

/// An IPv4 frame whose IP length is zero, as one that its device is to segment.
fn unsegmented() -> Vec<u8> {
    let mut frame = tcp(0x10, 3).payload([8; 600]).frame();
    frame[16..18].copy_from_slice(&[0, 0]);
    frame
}

/// The same in IPv6, where the field is the payload's.
fn unsegmented_v6(payload: usize) -> Vec<u8> {
    let (from, to) = (at("[2001:db8::1]:1"), at("[2001:db8::2]:443"));
    let segment = build::tcp(from, to, 0x10, 3).payload(vec![8; payload]);
    let mut frame = segment.frame();
    frame[18..20].copy_from_slice(&[0, 0]);
    frame
}

/// A TCP segment with AE and a reserved bit.
fn reserved_bits() -> Vec<u8> {
    let mut frame = tcp(0xc2, 0).frame();
    frame[46] |= 0x05;
    frame
}

/// The answer to an echo request.
fn echo_reply(mut request: Vec<u8>, kind_at: usize) -> Vec<u8> {
    request[kind_at] = if request[kind_at] == 8 { 0 } else { 129 };
    request[kind_at + 4] = 7;
    request
}

/// Ethernet addresses that begin with this byte, and IPv4's EtherType.
fn ethernet(first: u8) -> [u8; 14] {
    [first, 0, 0, 0, 0, 9, first, 0, 0, 0, 0, 8, 8, 0]
}

/// An IPv4 packet with an authentication header, and one that has lost it.
fn authenticated(words: u8) -> Vec<u8> {
    authenticating(words).frame()
}

fn authenticating(words: u8) -> Builder {
    let ah = [
        17, words, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9, 0, 9, 0, 8, 0, 12,
    ];
    build::other(
        at("192.0.2.1:0").ip(),
        at("192.0.2.2:0").ip(),
        protocol::AUTHENTICATION,
    )
    .payload(ah)
}

/// One frame of every kind.
pub(crate) fn kinds() -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = built().iter().map(Builder::frame).collect();
    frames.extend([
        announced(&[0x88, 0x47, 0, 1, 0x01, 9], &v4()),
        announced(&[0x88, 0x47, 0, 1, 0x00, 9, 0, 2, 0x11, 9], &v6()),
        announced(&[0x88, 0x48, 0, 1, 0x01, 9], &other(2)),
        announced(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0x00, 0x21], &v4()),
        announced(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0x00, 0x57], &v6()),
        announced(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0xc0, 0x21], &v4()),
        announced(&[0x00, 0x60, 0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x00], &v4()),
        announced(&[0x00, 0x60, 0xaa, 0xaa, 3, 0, 0, 0xf8, 0x86, 0xdd], &v6()),
        announced(&[0x00, 0x60, 6, 6, 3], &v4()),
        announced(&[0x00, 0x60, 0x42, 0x42, 3], &v4()),
        announced(&[0x81, 0x00, 0, 5, 0x88, 0x47, 0, 1, 0x01, 9], &v4()),
        announced(&[0x08, 0x00], &v6()),
        announced(&[0x86, 0xdd], &v4()),
        announced(&[0x08, 0x06], &v4()),
        with_options(0x02, &[2, 4, 5, 0xb4, 1, 3, 3, 7]),
        with_options(0x12, &[1, 1, 1, 3, 3, 14, 0, 0]),
        with_options(0x02, &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3]),
        with_options(0x02, &[5, 1, 3, 3, 7, 0, 0, 0]),
        with_options(0x02, &[0, 3, 3, 7]),
        with_options(0x10, &[3, 3, 7, 1]),
        with_options(0x02, &[1; 40]),
        jumbo(&[0xc2, 4, 0, 1, 0, 50, 1, 6, 0, 0, 0, 0, 0, 0], 900),
        jumbo(&[0, 1, 1, 0, 0xc2, 4, 0, 1, 0, 50, 1, 2, 0, 0], 90),
        jumbo(&[0xc2, 4, 0, 0, 0, 50, 1, 6, 0, 0, 0, 0, 0, 0], 90),
        jumbo(&[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 90),
        jumbo(&[0; 14], 90),
        unsegmented(),
        unsegmented_v6(1500),
        unsegmented_v6(1280 - 40 - 32),
        unsegmented_v6(1280 - 40 - 32 + 1),
        reserved_bits(),
        authenticated(4),
        authenticated(200),
        authenticating(4)
            .identification(5)
            .fragment(0, true)
            .frame(),
        authenticating(4)
            .identification(5)
            .fragment(4, false)
            .frame(),
    ]);
    let hosts = [at("192.0.2.1:0").ip(), at("192.0.2.2:0").ip()];
    let hosts_v6 = [at("[2001:db8::1]:0").ip(), at("[2001:db8::2]:0").ip()];
    frames.extend([
        echo_reply(build::echo(hosts[1], hosts[0]).frame(), 34),
        echo_reply(build::echo(hosts_v6[1], hosts_v6[0]).frame(), 54),
    ]);
    let label = [0x88, 0x47, 0, 1, 0x01, 9];
    let behind = |between: &[u8], frame: &Builder| announced(&[&label, between].concat(), frame);
    frames.extend([
        behind(&[&[0; 4][..], &ethernet(0xaa)].concat(), &v4()),
        behind(&ethernet(0xaa), &v4()),
        behind(&ethernet(0x02), &v4()),
        behind(
            &[&[0; 4][..], &ethernet(0xaa)[..12], &[8, 6]].concat(),
            &v4(),
        ),
        behind(&[&[0x10, 0, 0, 7][..], &ethernet(0xaa)].concat(), &v4()),
        announced(
            &[&[0x88, 0xe7, 0, 0, 1, 2][..], &ethernet(0x02)].concat(),
            &v4(),
        ),
        announced(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0x21], &v4()),
        announced(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0x57], &v6()),
        announced(
            &[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0x02, 0x81, 0, 1, 0x01, 9],
            &v4(),
        ),
        announced(
            &[0x88, 0x64, 0x11, 0, 0, 7, 0, 80, 0x02, 0x83, 0, 1, 0x01, 9],
            &v6(),
        ),
    ]);
    frames
}

/// A generator: no test here needs to find a smaller case.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[usize::try_from(self.below(choice.len() as u64)).unwrap()]
    }
}

/// Packets of a few flows that begin, pause, end, and begin again; the clock goes back at times.
pub(crate) fn conversation(seed: u64, packets: usize) -> Vec<OwnedFrame> {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let mut time_ns = 1_700_000_000 * SECOND;
    let flags = [
        0x02, 0x12, 0x10, 0x18, 0x18, 0x18, 0x11, 0x14, 0xc2, 0x00, 0x29,
    ];
    let gaps = [
        0,
        1000,
        1_000_000,
        SECOND / 2,
        SECOND * 2,
        SECOND * 7,
        SECOND * 130,
        -SECOND,
    ];
    let mut frames = Vec::new();
    for _ in 0..packets {
        let ends = [host(1000 + random.below(3)), at("192.0.2.2:443")];
        let from = usize::try_from(random.below(2)).unwrap();
        let payload = vec![0; usize::try_from(random.of(&[0, 0, 1, 100, 1400])).unwrap()];
        let (source, destination) = (ends[from], ends[1 - from]);
        let builder = if random.below(4) == 0 {
            build::udp(source, destination)
        } else {
            build::tcp(source, destination, random.of(&flags), 2)
        };
        let ttl = u8::try_from(60 + random.below(4)).unwrap();
        let vlan = u16::try_from(random.below(2)).unwrap();
        let mut frame = builder
            .ttl(ttl)
            .tos(ttl)
            .vlan(7 + vlan)
            .payload(payload)
            .frame();
        if frame[27] == 6 {
            // One of two initial sequence numbers.
            frame[45] = u8::try_from(random.below(2)).unwrap();
        }
        time_ns += random.of(&gaps);
        let length = u32::try_from(frame.len()).unwrap();
        frames.push(captured(time_ns, frame, length));
    }
    frames
}

fn host(port: u64) -> SocketAddr {
    format!("192.0.2.1:{port}").parse().unwrap()
}
