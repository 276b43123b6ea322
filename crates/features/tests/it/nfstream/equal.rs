//! Captures of which NFStream makes the same rows.

use features::dissect::Tunnels;
use packet::build::Extension;
use packet::pcap::OwnedFrame;

use super::captures::{
    ACK, CWR, Case, ECE, Expectation, FIN, PSH, RST, SYN, URG, at, behind, cut, echo, fragment,
    network, other, tcp, udp,
};

const A: &str = "10.0.0.1:1000";
const B: &str = "10.0.0.2:2000";
const A6: &str = "[fd00::1]:1000";
const B6: &str = "[fd00::2]:2000";

const SECOND: u64 = 1_000_000;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a TCP conversation", conversation()),
        case("every flag", flags()),
        case("TCP's end ends no flow", reopened()),
        case("an answer without its question", answer()),
        case(
            "no IP at all",
            vec![at(0, behind(0x0806, &[0; 28], &udp(A, B).frame()[..14]))],
        ),
        case("ICMP", both_ways(|a, b| echo(host(a), host(b)).frame())),
        case("IPv6 and ICMPv6", v6()),
        case("other protocols", protocols()),
        case("tags and labels", tags()),
        case("padding", padding()),
        case("first fragments", first_fragments()),
        case("extension headers", extensions()),
        case("cut off behind the headers", cut_off()),
        case("IPv4 options", vec![at(0, udp(A, B).options(3).frame())]),
        case("transport lengths that cannot be", transport_lengths()),
        case("one host", one_host()),
        case(
            "equal ports",
            both_ways(|a, b| udp(&at_port(a, 5), &at_port(b, 5)).frame()),
        ),
        case("just not idle", gap(120 * SECOND - 1000)),
        case("idle", gap(120 * SECOND)),
        case("just not too long", long(1800 * SECOND - 1000)),
        case("too long", long(1800 * SECOND)),
        case("many packets", many()),
        case("raw IP", links(101, &[])),
        case("raw IP by its old number", links(12, &[])),
        case("BSD loopback", links(0, &[2, 0, 0, 0])),
        Case {
            tunnels: Tunnels::Inner,
            ..case("IP in IP", ip_in_ip())
        },
        case(
            "Linux cooked",
            links(113, &[0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]),
        ),
    ]
}

fn case(name: &'static str, frames: Vec<OwnedFrame>) -> Case {
    Case {
        name,
        frames,
        tunnels: Tunnels::Outer,
        expected: Expectation::Equal,
    }
}

/// A packet there and one back.
fn both_ways(frame: impl Fn(&str, &str) -> Vec<u8>) -> Vec<OwnedFrame> {
    vec![
        at(0, frame(A, B)),
        at(1500, frame(B, A)),
        at(9700, frame(A, B)),
    ]
}

fn host(socket: &str) -> &str {
    socket.rsplit_once(':').unwrap().0
}

fn at_port(socket: &str, port: u16) -> String {
    format!("{}:{port}", host(socket))
}

fn conversation() -> Vec<OwnedFrame> {
    vec![
        at(0, tcp(A, B, SYN).frame()),
        at(10_600, tcp(B, A, SYN | ACK).frame()),
        at(20_300, tcp(A, B, ACK).frame()),
        at(20_400, tcp(A, B, PSH | ACK).payload([7; 300]).frame()),
        at(50_999, tcp(B, A, ACK).payload([8; 1400]).frame()),
        at(51_000, tcp(B, A, PSH | ACK).payload([9; 900]).frame()),
        at(80_000, tcp(A, B, FIN | ACK).frame()),
        at(81_000, tcp(B, A, FIN | ACK).frame()),
    ]
}

fn flags() -> Vec<OwnedFrame> {
    let flags = [FIN, SYN, RST, PSH, ACK, URG, ECE, CWR, 0xff, 0];
    let frames = (0..).zip(flags).map(|(number, flag)| {
        let (source, destination) = if number % 3 == 0 { (B, A) } else { (A, B) };
        at(number * 1000, tcp(source, destination, flag).frame())
    });
    frames.collect()
}

fn reopened() -> Vec<OwnedFrame> {
    let flags = [SYN, FIN | ACK, RST, SYN];
    let frames = (0..).zip(flags).map(|(number, flag)| {
        let again = at(number * 30 * SECOND, tcp(A, B, flag).frame());
        [
            again,
            at(number * 30 * SECOND + 7000, tcp(B, A, flag).frame()),
        ]
    });
    frames.flatten().collect()
}

fn answer() -> Vec<OwnedFrame> {
    let macs = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]);
    vec![
        at(0, tcp(B, A, SYN | ACK).macs(macs.0, macs.1).frame()),
        at(3000, tcp(A, B, ACK).macs(macs.1, macs.0).frame()),
        at(9000, tcp(B, A, ACK).payload([1; 40]).frame()),
    ]
}

fn v6() -> Vec<OwnedFrame> {
    vec![
        at(0, udp(A6, B6).frame()),
        at(1000, udp(B6, A6).frame()),
        at(2000, echo("fd00::1", "fd00::2").frame()),
        at(3000, echo("fd00::2", "fd00::1").frame()),
        at(4000, udp("[::ffff:1.2.3.4]:7", "[fe80::1:0:0:1]:8").frame()),
    ]
}

/// IGMP, ESP, OSPF, and GRE, which is not looked into.
fn protocols() -> Vec<OwnedFrame> {
    let gre = [&[0, 0, 8, 0][..], &network(&udp(A, B).frame())].concat();
    let frame = |time, protocol, payload: &[u8]| {
        at(
            time,
            other("10.0.0.1", "10.0.0.2", protocol, payload).frame(),
        )
    };
    vec![
        frame(0, 2, &[1; 24]),
        frame(1000, 50, &[1; 24]),
        frame(2000, 89, &[1; 24]),
        frame(3000, 47, &gre),
    ]
}

fn tags() -> Vec<OwnedFrame> {
    let plain = udp(A, B).frame();
    vec![
        at(0, udp(A, B).vlan(5).frame()),
        at(1000, udp(B, A).vlan(0xe005).frame()),
        at(2000, udp(B, A).vlan(6).frame()),
        at(3000, udp(A, B).vlan(0).frame()),
        at(4000, plain.clone()),
        at(5000, behind(0x8847, &[0, 1, 0x11, 0x40], &plain)),
        at(
            6000,
            behind(0x8847, &[0, 1, 0x10, 0x40, 0, 1, 0x11, 0x40], &plain),
        ),
        at(
            7000,
            behind(0x8864, &[0x11, 0, 0, 1, 0, 40, 0, 0x21], &plain),
        ),
        at(8000, behind(60, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &plain)),
    ]
}

fn padding() -> Vec<OwnedFrame> {
    vec![
        at(0, tcp(A, B, SYN).padding(6).frame()),
        at(1000, tcp(A, B, ACK).padding(10).frame()),
        at(2000, udp(A6, B6).padding(4).frame()),
    ]
}

fn first_fragments() -> Vec<OwnedFrame> {
    vec![
        at(0, udp(A, B).fragment(0, true).frame()),
        at(1000, tcp(A, B, ACK).fragment(0, true).frame()),
        at(2000, udp(A6, B6).extension(fragment(0, true)).frame()),
        at(3000, udp(A6, B6).extension(fragment(0, false)).frame()),
    ]
}

fn extensions() -> Vec<OwnedFrame> {
    let chain = [
        Extension::HopByHop(0),
        Extension::DestinationOptions(1),
        Extension::Routing(2),
    ];
    let one = |extension| tcp(A6, B6, ACK).extension(extension).frame();
    let mut frames: Vec<_> = (0..)
        .zip(chain)
        .map(|(number, extension)| at(number * 1000, one(extension)))
        .collect();
    let all = chain
        .into_iter()
        .fold(udp(A6, B6), |packet, extension| packet.extension(extension));
    frames.push(at(9000, all.frame()));
    frames
}

fn cut_off() -> Vec<OwnedFrame> {
    let long = |time| at(time, tcp(A, B, PSH | ACK).payload([1; 900]).frame());
    let datagram = |time| at(time, udp(A, B).payload([1; 900]).frame());
    vec![
        cut(long(0), 54),
        cut(long(1000), 96),
        long(2000),
        cut(datagram(3000), 42),
        cut(datagram(4000), 68),
    ]
}

fn transport_lengths() -> Vec<OwnedFrame> {
    let tcp = |time, words: u8| {
        let mut frame = tcp(A, B, SYN | ACK).payload([1; 6]).frame();
        frame[46] = words << 4;
        at(time, frame)
    };
    let udp = |time, length: u8| {
        let mut frame = udp(A, B).frame();
        frame[39] = length;
        at(time, frame)
    };
    vec![
        tcp(0, 0),
        tcp(1000, 4),
        tcp(2000, 15),
        udp(3000, 0),
        udp(4000, 7),
        udp(5000, 100),
    ]
}

fn one_host() -> Vec<OwnedFrame> {
    let (low, high) = (A, "10.0.0.1:2000");
    vec![
        at(0, udp(high, low).frame()),
        at(1000, udp(low, high).frame()),
        at(2000, udp(high, low).frame()),
        at(3000, udp(low, low).frame()),
        at(4000, udp(low, low).frame()),
    ]
}

/// Also two deep, and of both versions.
fn ip_in_ip() -> Vec<OwnedFrame> {
    let inside = udp(A, B).frame();
    let v4 = |bytes: &[u8]| other("1.1.1.1", "2.2.2.2", 4, &network(bytes)).frame();
    let v6 = |bytes: &[u8]| other("fd00::1", "fd00::2", 4, &network(bytes)).frame();
    let in_v6 = other("1.1.1.1", "2.2.2.2", 41, &network(&udp(A6, B6).frame())).frame();
    vec![
        at(0, v4(&inside)),
        at(1000, v4(&v4(&inside))),
        at(2000, v6(&inside)),
        at(3000, in_v6),
    ]
}

/// A flow's second packet that much later, and a third.
fn gap(time_us: u64) -> Vec<OwnedFrame> {
    let times = [0, time_us, time_us + 5000];
    times.map(|time| at(time, udp(A, B).frame())).to_vec()
}

/// A packet each minute and a half, one at this time, and one a little later from the other side.
fn long(time_us: u64) -> Vec<OwnedFrame> {
    let regular = (0..20).map(|number| number * 90 * SECOND);
    let mut frames: Vec<_> = regular.map(|time| at(time, udp(A, B).frame())).collect();
    frames.push(at(time_us, udp(A, B).frame()));
    frames.push(at(time_us + 5000, udp(B, A).frame()));
    frames
}

/// Lengths and gaps that follow no rule.
fn many() -> Vec<OwnedFrame> {
    let mut time = 0;
    let frames = (0_u64..300).map(|number| {
        time += number * number * 7919 % 100_003;
        let length = usize::try_from(number * 104_729 % 1400).unwrap();
        let (source, destination) = if number % 7 < 3 { (B, A) } else { (A, B) };
        at(
            time,
            udp(source, destination).payload(vec![0; length]).frame(),
        )
    });
    frames.collect()
}

fn links(link_type: u32, header: &[u8]) -> Vec<OwnedFrame> {
    let frames = both_ways(|a, b| [header, &network(&udp(a, b).frame())].concat());
    let of_type = |frame| OwnedFrame { link_type, ..frame };
    frames.into_iter().map(of_type).collect()
}
