//! Which packets are one flow: in tunnels whose directions have their own identifiers, fragments behind extension
//! headers, echoes side by side, and connections that follow each other in one tick of the clock.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use features::dissect::Tunnels;
use features::pcap::Run;
use packet::build::{self, Builder, Extension};
use packet::pcap::{ETHERNET, Writer};
use packet::protocol;
use serde_json::{Value, json};

use crate::common::{json_rows, run};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const RST: u8 = 0x04;
const PPP: u32 = 9;

fn client() -> SocketAddr {
    "192.168.1.10:40000".parse().unwrap()
}

fn server() -> SocketAddr {
    "203.0.113.5:443".parse().unwrap()
}

/// A TCP conversation: who sends, true for the client, and the packet.
fn conversation() -> Vec<(bool, Builder)> {
    let there = |flags| build::tcp(client(), server(), flags, 0);
    let back = |flags| build::tcp(server(), client(), flags, 0);
    vec![
        (true, there(SYN)),
        (false, back(SYN | ACK)),
        (true, there(ACK).payload([1; 20])),
        (false, back(ACK).payload([2; 500])),
    ]
}

/// A frame without its Ethernet header.
fn network(builder: &Builder) -> Vec<u8> {
    builder.frame().split_off(14)
}

/// A capture of frames of this link type, a millisecond apart.
fn capture(link_type: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    capture_by(1_000_000, link_type, frames)
}

fn capture_by(gap_ns: i64, link_type: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link_type).unwrap();
    let mut time = 1_700_000_000_000_000_000;
    for frame in frames {
        writer.write(time, frame).unwrap();
        time += gap_ns;
    }
    writer.finish().unwrap()
}

/// The rows of a capture, with tunnels opened.
fn inner(schema: &str, frames: &[Vec<u8>]) -> Vec<Value> {
    let mut run: Run = run(schema);
    run.options.tunnels = Tunnels::Inner;
    json_rows(&run, &capture(ETHERNET, frames)).1
}

fn rows(frames: &[Vec<u8>]) -> Vec<Value> {
    json_rows(&run("flow.v1"), &capture(ETHERNET, frames)).1
}

/// The conversation, each packet behind the header that `header` makes for its direction.
fn tunnelled(header: impl Fn(bool) -> (u8, Vec<u8>, bool)) -> Vec<Vec<u8>> {
    let ends: [IpAddr; 2] = ["10.1.0.1", "10.1.0.2"].map(|end| end.parse().unwrap());
    let frames = conversation().into_iter().map(|(there, packet)| {
        let (number, header, is_ethernet) = header(there);
        let inside = if is_ethernet {
            packet.frame()
        } else {
            network(&packet)
        };
        let payload = [header, inside].concat();
        let (from, to) = if there {
            (ends[0], ends[1])
        } else {
            (ends[1], ends[0])
        };
        build::other(from, to, number).payload(payload).frame()
    });
    frames.collect()
}

/// A UDP header between these ports for so many bytes, without a checksum.
fn udp(port: u16, length: u16) -> Vec<u8> {
    [50_000, port, 8 + length, 0].map(u16::to_be_bytes).concat()
}

fn gtp(there: bool) -> (u8, Vec<u8>, bool) {
    let endpoint: u32 = if there { 0x1111 } else { 0x2222 };
    let header = [&[0x30, 255, 0, 40][..], &endpoint.to_be_bytes()].concat();
    (protocol::UDP, [udp(2152, 48), header].concat(), false)
}

fn gre(there: bool) -> (u8, Vec<u8>, bool) {
    let key: u32 = if there { 7 } else { 0x9999_0001 };
    (
        47,
        [&[0x20, 0, 8, 0][..], &key.to_be_bytes()].concat(),
        false,
    )
}

fn vxlan(network: u32) -> (u8, Vec<u8>, bool) {
    let header = [&[8, 0, 0, 0][..], &(network << 8).to_be_bytes()].concat();
    (protocol::UDP, [udp(4789, 70), header].concat(), true)
}

fn nvgre(subnet: u32, flow: u32) -> (u8, Vec<u8>, bool) {
    let key = subnet << 8 | flow;
    (
        47,
        [&[0x20, 0, 0x65, 0x58][..], &key.to_be_bytes()].concat(),
        true,
    )
}

#[test]
fn identifiers_of_each_direction_do_not_split_a_flow_in_a_tunnel() {
    for (name, header, forward, backward) in [
        (
            "GTP",
            gtp as fn(bool) -> (u8, Vec<u8>, bool),
            0x1111,
            0x2222,
        ),
        ("GRE", gre, 7, 0x9999_0001_u32),
        // The flow's hash in the lowest byte is no part of the subnet.
        ("NVGRE", |there| nvgre(0x1234, there.into()), 0x1234, 0x1234),
    ] {
        let rows = inner("flow.v1", &tunnelled(header));
        assert_eq!(rows.len(), 1, "{name}: {rows:#?}");
        let row = &rows[0];
        assert_eq!(
            (&row["packets"], &row["bwd_packets"]),
            (&json!(4), &json!(2)),
            "{name}"
        );
        assert_eq!(row["tunnel_id"], json!(forward), "{name}");
        assert_eq!(row["bwd_tunnel_id"], json!(backward), "{name}");
    }
}

#[test]
fn virtual_networks_with_the_same_addresses_are_told_apart() {
    let frames = [tunnelled(|_| vxlan(5)), tunnelled(|_| vxlan(6))].concat();
    let rows = inner("flow.v1", &frames);
    let networks: HashSet<_> = rows.iter().map(|row| row["tunnel_id"].as_u64()).collect();
    assert_eq!(networks, HashSet::from([Some(5), Some(6)]));
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_segment_in_ipfix_has_its_encapsulation_and_other_tunnels_have_none() {
    let segment = |frames: &[Vec<u8>]| inner("ipfix", frames)[0]["layer2SegmentId"].clone();
    assert_eq!(
        segment(&tunnelled(|_| vxlan(4660))),
        json!(1_u64 << 56 | 4660)
    );
    assert_eq!(
        segment(&tunnelled(|_| nvgre(0x1234, 1))),
        json!(2_u64 << 56 | 0x1234)
    );
    assert_eq!(segment(&tunnelled(gtp)), Value::Null);
    assert_eq!(segment(&tunnelled(gre)), Value::Null);
}

#[test]
fn control_bits_in_ipfix_have_accurate_ecn_and_reserved_bits() {
    let mut syn = build::tcp(client(), server(), 0xc2, 0).frame();
    syn[46] |= 0x01;
    let mut answer = build::tcp(server(), client(), SYN | ACK, 0).frame();
    answer[46] |= 0x08;
    let rows = json_rows(&run("ipfix"), &capture(ETHERNET, &[syn, answer])).1;
    assert_eq!(rows[0]["tcpControlBits"], json!(0x1c2));
    assert_eq!(rows[0]["reverseTcpControlBits"], json!(0x812));
}

fn six() -> [SocketAddr; 2] {
    ["[2001:db8::1]:1111", "[2001:db8::2]:2222"].map(|end| end.parse().unwrap())
}

#[test]
fn fragments_are_of_one_packet_whatever_header_follows_the_fragment_header() {
    let [from, to] = six();
    let piece = |offset, more| Extension::Fragment { offset, more };
    let first = build::udp(from, to)
        .payload([1; 32])
        .extension(piece(0, true))
        .extension(Extension::DestinationOptions(0));
    let number = protocol::DESTINATION_OPTIONS;
    let later = build::other(from.ip(), to.ip(), number)
        .payload([2; 40])
        .extension(piece(6, false));
    let frames = [first, later].map(|packet| packet.identification(77).frame());
    let rows = rows(&frames);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    let row = &rows[0];
    assert_eq!((&row["packets"], &row["protocol"]), (&json!(2), &json!(17)));
    assert_eq!(
        (&row["src_port"], &row["dst_port"]),
        (&json!(1111), &json!(2222))
    );
}

#[test]
fn fragments_behind_an_authentication_header_are_of_one_ipv4_packet() {
    let header = [
        17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
    ];
    let datagram = [udp(53, 32), vec![1; 32]].concat();
    let packet = |payload: Vec<u8>| {
        build::other(client().ip(), server().ip(), protocol::AUTHENTICATION)
            .payload(payload)
            .identification(9)
    };
    let whole = [&header[..], &datagram].concat();
    let frames = [
        packet(whole[..40].to_vec()).fragment(0, true).frame(),
        packet(whole[40..].to_vec()).fragment(5, false).frame(),
    ];
    let rows = rows(&frames);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!(
        (&rows[0]["packets"], &rows[0]["dst_port"]),
        (&json!(2), &json!(53))
    );
}

#[test]
fn a_tcp_superframe_without_a_payload_length_is_of_its_flow() {
    let [from, to] = six();
    let segment = |bytes: usize| build::tcp(from, to, ACK, 0).payload(vec![7; bytes]).frame();
    let mut superframe = segment(2000);
    superframe[18..20].fill(0);
    let rows = rows(&[segment(100), superframe, segment(100)]);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    let row = &rows[0];
    assert_eq!(
        (&row["packets"], &row["payload_bytes"]),
        (&json!(3), &json!(2200))
    );
    assert_eq!(
        (&row["aggregated_packets"], &row["malformed_packets"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn a_port_that_is_used_again_in_one_tick_has_another_flow_id() {
    let mut frames = Vec::new();
    for initial in [1_u32, 1000] {
        let mut syn = build::tcp(client(), server(), SYN, 0).frame();
        syn[38..42].copy_from_slice(&initial.to_be_bytes());
        frames.extend([syn, build::tcp(server(), client(), RST | ACK, 0).frame()]);
    }
    for schema in ["flow.v1", "cic.v1"] {
        let rows = json_rows(&run(schema), &capture_by(0, ETHERNET, &frames)).1;
        assert_eq!(rows.len(), 2, "{rows:#?}");
    }
    let ids = |schema: &str| -> Vec<String> {
        let rows = json_rows(&run(schema), &capture_by(0, ETHERNET, &frames)).1;
        rows.iter().map(|row| row["flow_id"].to_string()).collect()
    };
    let (flows, packets) = (ids("flow.v1"), ids("packet.v1"));
    assert_ne!(flows[0], flows[1]);
    // Rows of packets join them.
    assert_eq!(
        HashSet::from_iter(packets),
        HashSet::<String>::from_iter(flows)
    );
}

#[test]
fn pings_side_by_side_are_flows_of_their_own() {
    let ends = [client().ip(), server().ip()];
    let mut frames = Vec::new();
    for identifier in [1, 2, 1, 2] {
        let mut request = build::echo(ends[0], ends[1]).frame();
        request[39] = identifier;
        let mut reply = build::echo(ends[1], ends[0]).frame();
        (reply[34], reply[39]) = (0, identifier);
        frames.extend([request, reply]);
    }
    let rows = rows(&frames);
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for row in &rows {
        assert_eq!(
            (&row["packets"], &row["bwd_packets"]),
            (&json!(4), &json!(2))
        );
        assert_eq!(
            (&row["src_port"], &row["dst_port"]),
            (&row["icmp_id"], &json!(0))
        );
    }
    assert_ne!(rows[0]["icmp_id"], rows[1]["icmp_id"]);
    let nfstream = json_rows(&run("nfstream.v1"), &capture(ETHERNET, &frames)).1;
    assert_eq!(nfstream.len(), 1, "NFStream does not tell them apart");
    let ipfix = json_rows(&run("ipfix"), &capture(ETHERNET, &frames)).1;
    assert_eq!(
        ipfix[0]["sourceTransportPort"],
        json!(0),
        "no port of a transport"
    );
}

/// What the conversation is behind these bytes, in place of its Ethernet header or of its EtherType.
fn behind(link_type: u32, bytes: &[u8], frame: fn(&Builder) -> Vec<u8>) -> Vec<Value> {
    let frames: Vec<Vec<u8>> = conversation()
        .iter()
        .map(|(_, packet)| [bytes, &frame(packet)].concat())
        .collect();
    let (summary, rows) = json_rows(&run("flow.v1"), &capture(link_type, &frames));
    assert_eq!(summary.counters.seen.left_out(), 0, "{bytes:02x?}");
    rows
}

#[test]
fn ip_in_point_to_point_links_labels_and_backbones_is_read() {
    let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let labelled = |more: &[u8]| [&addresses[..], &[0x88, 0x47, 0, 1, 0x01, 64], more].concat();
    let service = [&addresses[..], &[0x88, 0xe7, 0, 0, 1, 2]].concat();
    let whole: fn(&Builder) -> Vec<u8> = Builder::frame;
    for (link_type, bytes, frame) in [
        (
            PPP,
            vec![0xff, 3, 0, 0x21],
            network as fn(&Builder) -> Vec<u8>,
        ),
        (PPP, vec![0x21], network),
        (PPP, vec![0xff, 3, 0x21], network),
        (PPP, vec![0x02, 0x81, 0, 1, 0x01, 64], network),
        (ETHERNET, labelled(&[]), network),
        (ETHERNET, labelled(&[0; 4]), whole),
        (ETHERNET, labelled(&[]), whole),
        (ETHERNET, service, whole),
    ] {
        let rows = behind(link_type, &bytes, frame);
        assert_eq!(rows.len(), 1, "{bytes:02x?}: {rows:#?}");
        let row = &rows[0];
        assert_eq!(
            (&row["packets"], &row["dst_port"]),
            (&json!(4), &json!(443)),
            "{bytes:02x?}"
        );
    }
}
