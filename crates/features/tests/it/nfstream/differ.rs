//! Captures of which NFStream makes other rows: each difference of the documentation's list.

use features::dissect::Tunnels;
use packet::build::Extension;
use packet::pcap::OwnedFrame;

use super::captures::{
    ACK, Case, Difference, Expectation, at, behind, cut, fragment, network, other, tcp, udp,
};

const A: &str = "10.0.0.1:1000";
const B: &str = "10.0.0.2:2000";
const C: &str = "10.0.0.3:3000";
const A6: &str = "[fd00::1]:1000";
const B6: &str = "[fd00::2]:2000";

/// Another packet of the same length at the same time.
const COUNTS: &[&str] = &[
    "bidirectional_bytes",
    "bidirectional_packets",
    "splt_direction",
    "splt_piat_ms",
    "splt_ps",
    "src2dst_bytes",
    "src2dst_packets",
];

/// Another length of a flow's only packet.
const LENGTHS: &[&str] = &[
    "bidirectional_bytes",
    "bidirectional_max_ps",
    "bidirectional_mean_ps",
    "bidirectional_min_ps",
    "splt_ps",
    "src2dst_bytes",
    "src2dst_max_ps",
    "src2dst_mean_ps",
    "src2dst_min_ps",
];

/// Another time of a flow's only packet.
const TIMES: &[&str] = &[
    "bidirectional_first_seen_ms",
    "bidirectional_last_seen_ms",
    "src2dst_first_seen_ms",
    "src2dst_last_seen_ms",
];

const LATER: &str = "Later fragments";
const CUT_OFF: &str = "Packets that were cut off";
const TAGS: &str = "Stacked VLAN tags";
const PORTS: &str = "Ports of SCTP, DCCP and UDP-Lite";
const HEADERS: &str = "IPv6 extension headers";
const TUNNELS: &str = "Tunnels";
const IMPOSSIBLE: &str = "Impossible headers";
const LINKS: &str = "Link layers";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case(LATER, later_v4(), [2, 1], 0, COUNTS),
        case(LATER, later_v6(), [2, 1], 0, COUNTS),
        case("A clock that goes back", clock_back(), [2, 2], 0, TIMES),
        case("Times after 2038", after_2038(), [1, 1], 0, TIMES),
        case(CUT_OFF, cut_v6(), [1, 0], 1, &[]),
        case(CUT_OFF, cut_udp(), [1, 0], 1, &[]),
        case(TAGS, tags(), [3, 1], 2, &[]),
        case(PORTS, ports(), [3, 3], 6, &[]),
        case(HEADERS, authentication(), [1, 1], 2, &[]),
        case(HEADERS, no_next_header(), [1, 0], 1, &[]),
        case(HEADERS, mobility(), [1, 1], 2, &[]),
        case("Frames beyond 64 KiB", long(), [1, 1], 0, LENGTHS),
        case("Lengths left to the device", no_length(), [1, 0], 1, &[]),
        case(
            "IPv4 and IPv6 with the same bits",
            same_bits(),
            [2, 2],
            1,
            COUNTS,
        ),
        case(IMPOSSIBLE, short_header(), [0, 1], 1, &[]),
        case(IMPOSSIBLE, other_version(), [0, 1], 1, &[]),
        case(IMPOSSIBLE, no_extension(), [0, 1], 1, &[]),
        case(IMPOSSIBLE, no_room(), [1, 1], 2, &[]),
        case(TUNNELS, ip_in_ip(), [1, 1], 2, &[]),
        case(TUNNELS, capwap(), [1, 0], 1, &[]),
        inner(case(TUNNELS, gre(), [1, 1], 2, &[])),
        inner(case(TUNNELS, gtp(), [1, 1], 0, &["tunnel_id"])),
    ];
    cases.extend(links());
    cases
}

fn case(
    name: &'static str,
    frames: Vec<OwnedFrame>,
    packets: [u64; 2],
    flows: usize,
    columns: &'static [&'static str],
) -> Case {
    Case {
        name,
        frames,
        tunnels: Tunnels::Outer,
        expected: Expectation::Differ(Difference {
            packets,
            flows,
            columns,
        }),
    }
}

fn inner(case: Case) -> Case {
    Case {
        tunnels: Tunnels::Inner,
        ..case
    }
}

fn later_v4() -> Vec<OwnedFrame> {
    let later = other("10.0.0.1", "10.0.0.2", 17, &[7; 18]);
    vec![
        at(0, udp(A, B).fragment(0, true).frame()),
        at(0, later.fragment(3, false).frame()),
    ]
}

fn later_v6() -> Vec<OwnedFrame> {
    let later = other("fd00::1", "fd00::2", 17, &[7; 18]);
    vec![
        at(0, udp(A6, B6).extension(fragment(0, true)).frame()),
        at(0, later.extension(fragment(3, false)).frame()),
    ]
}

/// The second flow's packet is older than the first's.
fn clock_back() -> Vec<OwnedFrame> {
    vec![
        at(100_000, udp(A, C).frame()),
        at(50_000, udp(A, B).frame()),
    ]
}

fn after_2038() -> Vec<OwnedFrame> {
    const SECONDS: i64 = 1 << 31;
    let frame = at(0, udp(A, B).frame());
    vec![OwnedFrame {
        timestamp_ns: SECONDS * 1_000_000_000,
        ..frame
    }]
}

fn cut_v6() -> Vec<OwnedFrame> {
    vec![cut(at(0, udp(A6, B6).frame()), 70)]
}

fn cut_udp() -> Vec<OwnedFrame> {
    vec![cut(at(0, udp(A, B).frame()), 40)]
}

fn tags() -> Vec<OwnedFrame> {
    vec![
        at(0, udp(A, B).vlan(5).vlan(6).frame()),
        at(1000, udp(A, B).tag(0x88a8, 5).vlan(6).frame()),
        at(2000, udp(A, B).tag(0x9100, 5).vlan(6).frame()),
    ]
}

fn ports() -> Vec<OwnedFrame> {
    let payload = [[3, 232, 7, 208], [0; 4], [0; 4], [0; 4]].concat();
    let frames = [132, 33, 136].map(|protocol| {
        let frame = other("10.0.0.1", "10.0.0.2", protocol, &payload).frame();
        at(0, frame)
    });
    frames.to_vec()
}

fn authentication() -> Vec<OwnedFrame> {
    let header = Extension::Authentication(2);
    vec![at(0, udp(A6, B6).extension(header).frame())]
}

fn no_next_header() -> Vec<OwnedFrame> {
    vec![at(0, other("fd00::1", "fd00::2", 59, &[1; 16]).frame())]
}

/// It names UDP as what follows; the standard says that nothing does.
fn mobility() -> Vec<OwnedFrame> {
    let payload = [&[17, 0, 0, 0, 0, 0, 0, 0][..], &[1; 16]].concat();
    vec![at(0, other("fd00::1", "fd00::2", 135, &payload).frame())]
}

/// What a device that joins segments hands over.
fn long() -> Vec<OwnedFrame> {
    let frame = cut(at(0, tcp(A, B, ACK).payload([1; 900]).frame()), 96);
    vec![OwnedFrame {
        original_length: 70_000,
        ..frame
    }]
}

fn no_length() -> Vec<OwnedFrame> {
    let mut frame = tcp(A, B, ACK).payload([1; 900]).frame();
    frame[16..18].fill(0);
    vec![at(0, frame)]
}

fn same_bits() -> Vec<OwnedFrame> {
    let v4 = udp("1.2.3.4:7", "5.6.7.8:9").payload([0; 40]);
    let v6 = udp("[102:304::]:7", "[506:708::]:9").payload([0; 20]);
    vec![at(0, v4.frame()), at(0, v6.frame())]
}

fn short_header() -> Vec<OwnedFrame> {
    let mut frame = other("10.0.0.1", "10.0.0.2", 89, &[1; 24]).frame();
    frame[14] = 0x44;
    vec![at(0, frame)]
}

/// IPv4 under IPv6's EtherType.
fn other_version() -> Vec<OwnedFrame> {
    vec![at(0, behind(0x86dd, &[], &udp(A, B).frame()))]
}

fn no_extension() -> Vec<OwnedFrame> {
    vec![at(0, other("fd00::1", "fd00::2", 60, &[]).frame())]
}

/// The IP header leaves the UDP header half of its length.
fn no_room() -> Vec<OwnedFrame> {
    let mut frame = udp(A, B).frame();
    frame[17] = 24;
    vec![at(0, frame)]
}

fn ip_in_ip() -> Vec<OwnedFrame> {
    let inside = network(&udp(A, B).frame());
    vec![at(0, other("1.1.1.1", "2.2.2.2", 4, &inside).frame())]
}

fn gre() -> Vec<OwnedFrame> {
    let inside = [&[0, 0, 8, 0][..], &network(&udp(A, B).frame())].concat();
    vec![at(0, other("1.1.1.1", "2.2.2.2", 47, &inside).frame())]
}

fn gtp() -> Vec<OwnedFrame> {
    let inside = network(&udp(A, B).frame());
    let header = [0x30, 0xff, 0, 38, 0, 0, 0, 99];
    let packet = udp("1.1.1.1:2152", "2.2.2.2:2152").payload([&header[..], &inside].concat());
    vec![at(0, packet.frame())]
}

/// To the port of CAPWAP, and not CAPWAP.
fn capwap() -> Vec<OwnedFrame> {
    let header = [0, 0x10, 2, 0, 0, 0, 0, 0];
    let payload = [&header[..], &udp(A, B).frame()].concat();
    vec![at(
        0,
        udp("1.1.1.1:5247", "2.2.2.2:5247").payload(payload).frame(),
    )]
}

fn links() -> [Case; 5] {
    let sll2 = [8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
    [
        link(108, &[0, 0, 0, 2], [1, 0]),
        link(276, &sll2, [1, 0]),
        link(9, &[0xff, 3, 0, 0x21], [1, 0]),
        link(50, &[0xff, 3, 0, 0x21], [0, 1]),
        link(104, &[0x0f, 0, 8, 0], [0, 1]),
    ]
}

/// A packet behind this link header, which one of the two reads.
fn link(link_type: u32, header: &[u8], packets: [u64; 2]) -> Case {
    let frame = [header, &network(&udp(A, B).frame())].concat();
    let frame = OwnedFrame {
        link_type,
        ..at(0, frame)
    };
    case(LINKS, vec![frame], packets, 1, &[])
}
