//! Frames that are truncated, have wrong lengths, or are for others.

use packet::build::{Extension, other, tcp};

use super::{Content, Ends, Fate, Item, numbered};
use crate::common::relay_rig::{INGRESS_MAC, SENDER_MAC};

/// Payload size of a frame that is then changed.
const SIZE: usize = 108;

pub(super) fn items(ends: Ends) -> Vec<Item> {
    let mut items = lengths(ends);
    items.extend(cut(ends));
    items.extend(headers(ends));
    items.extend(foreign(ends));
    items.extend(impostors(ends));
    items
}

/// Offsets of the network header's length and of the UDP header.
fn places(ends: Ends) -> (usize, usize) {
    if ends.is_v4() { (16, 34) } else { (18, 54) }
}

/// A datagram whose frame is then changed. The checksum of the IPv4 header is corrected.
fn spoiled(ends: Ends, number: u16, spoil: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = ends.datagram(numbered(number, SIZE)).frame();
    spoil(&mut frame);
    if ends.is_v4() && frame.len() >= 34 {
        frame[24..26].fill(0);
        let check = packet::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
    }
    frame
}

fn add(frame: &mut [u8], at: usize, difference: i16) {
    let before = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let after = before.wrapping_add_signed(difference);
    frame[at..at + 2].copy_from_slice(&after.to_be_bytes());
}

fn lengths(ends: Ends) -> Vec<Item> {
    let (network, udp) = places(ends);
    let length = udp + 4;
    let malformed = |what, spoil: &dyn Fn(&mut Vec<u8>)| {
        Item::new(what, spoiled(ends, 600, spoil), Fate::Malformed)
    };
    let mut items = vec![
        malformed("IP length beyond the frame", &|frame| {
            add(frame, network, 1);
        }),
        malformed("IP length far beyond", &|frame| add(frame, network, 9000)),
        malformed("IP length below UDP's", &|frame| add(frame, network, -1)),
        malformed("UDP length beyond the packet", &|frame| {
            add(frame, length, 1);
        }),
        malformed("UDP length far beyond", &|frame| add(frame, length, 20_000)),
        malformed("UDP length below its header", &|frame| {
            frame[length..length + 2].copy_from_slice(&[0, 7]);
        }),
    ];
    // Bytes of the packet behind UDP's length are not part of the datagram.
    let payload = numbered(601, SIZE);
    let mut frame = ends.datagram(payload.clone()).padding(6).frame();
    add(&mut frame, network, 6);
    if ends.is_v4() {
        frame[24..26].fill(0);
        let check = packet::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
        items.push(malformed("UDP length 0", &|frame| {
            frame[length..length + 2].fill(0);
        }));
    }
    let content = Content {
        payload,
        ttl: 63,
        tos: 0,
    };
    items.push(Item::new(
        "packet longer than UDP",
        frame,
        Fate::Relayed(content),
    ));
    items
}

/// Truncated frames. If the ports are still there, the frame is counted for its stream.
fn cut(ends: Ends) -> Vec<Item> {
    let (_, udp) = places(ends);
    let item = |end: usize, fate| {
        let mut frame = ends.datagram(numbered(610, SIZE)).frame();
        frame.truncate(end);
        Item::new(&format!("cut to {end} bytes"), frame, fate)
    };
    vec![
        item(14, Fate::Nothing),
        item(15, Fate::Nothing),
        item(24, Fate::Nothing),
        item(udp - 1, Fate::Nothing),
        item(udp, Fate::Nothing),
        item(udp + 7, Fate::Nothing),
        item(udp + 8, Fate::Malformed),
        item(udp + 50, Fate::Malformed),
    ]
}

fn headers(ends: Ends) -> Vec<Item> {
    let nothing = |what, spoil: &dyn Fn(&mut Vec<u8>)| {
        Item::new(what, spoiled(ends, 620, spoil), Fate::Nothing)
    };
    let mut items = vec![
        nothing("version 5", &|frame| frame[14] = 0x55),
        nothing("another EtherType", &|frame| {
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        }),
        nothing("ARP in name", &|frame| {
            frame[12..14].copy_from_slice(&[8, 6]);
        }),
    ];
    if ends.is_v4() {
        let mut wrong = ends.datagram(numbered(621, SIZE)).frame();
        wrong[24] ^= 0x10;
        items.extend([
            nothing("header length 4", &|frame| frame[14] = 0x44),
            nothing("header length 15", &|frame| frame[14] = 0x4f),
            nothing("version 6", &|frame| frame[14] = 0x65),
            Item::new("wrong header checksum", wrong, Fate::Malformed),
        ]);
    } else {
        let authenticated = ends
            .datagram(numbered(622, SIZE))
            .extension(Extension::Authentication(0));
        items.extend([
            nothing("version 4", &|frame| frame[14] = 0x45),
            Item::new("authentication", authenticated.frame(), Fate::Nothing),
        ]);
    }
    items
}

/// Frames for another port, machine or protocol.
fn foreign(ends: Ends) -> Vec<Item> {
    let (own, beyond) = if ends.is_v4() {
        ("10.91.1.1:5004", "10.91.1.2:9999")
    } else {
        ("[fd91:0:0:1::1]:5004", "[fd91:0:0:1::2]:9999")
    };
    let mut port = ends;
    port.to.set_port(5005);
    let payload = || numbered(630, 50);
    let nothing =
        |what, ends: Ends| Item::new(what, ends.datagram(payload()).frame(), Fate::Nothing);
    let segment = tcp(ends.from, ends.to, 2, 0).macs(SENDER_MAC, INGRESS_MAC);
    let unknown = other(ends.from.ip(), ends.to.ip(), 253).macs(SENDER_MAC, INGRESS_MAC);
    vec![
        nothing("another port", port),
        nothing("another of the relay's addresses", ends.sent_to(own)),
        Item::new("TCP", segment.frame(), Fate::Nothing),
        Item::new(
            "another protocol",
            unknown.payload(payload()).frame(),
            Fate::Nothing,
        ),
        Item::new(
            "transit",
            ends.sent_to(beyond).datagram(payload()).frame(),
            Fate::Routed,
        ),
    ]
}

/// Frames with source addresses that no packet may have.
fn impostors(ends: Ends) -> Vec<Item> {
    let addresses: &[&str] = if ends.is_v4() {
        &[
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "10.91.0.2",
        ]
    } else {
        &["::1", "ff02::1"]
    };
    let nothing = |(address, number): (&&str, u16)| {
        let frame = ends
            .sent_from(address)
            .datagram(numbered(number, 60))
            .frame();
        Item::new(&format!("from {address}"), frame, Fate::Nothing)
    };
    let mut items: Vec<Item> = addresses.iter().zip(650..).map(nothing).collect();
    if !ends.is_v4() {
        let mapped = ends.sent_from("::ffff:10.91.0.1");
        items.push(Item::relayed("mapped", mapped, numbered(642, 62), |built| built).alone());
    }
    let unrouted = if ends.is_v4() {
        "198.51.100.7"
    } else {
        "2001:db8::7"
    };
    items.push(Item::relayed(
        "no way back",
        ends.sent_from(unrouted),
        numbered(641, 61),
        |built| built,
    ));
    items
}
