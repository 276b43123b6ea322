//! Hard captures: what is before the IP header.

use packet::ethertype;
use packet::pcap::ETHERNET;

use super::capture::{Capture, L3, V4, plain, tcp};

pub(super) fn link_types() -> Vec<Capture> {
    const RAW: [u32; 4] = [12, 14, 101, 228];
    let packets: Vec<Vec<u8>> = plain().iter().map(|b| b.frame().split_off(L3)).collect();
    let raw = RAW.map(|link_type| {
        let mut capture = Capture::new("raw", link_type);
        packets
            .iter()
            .cloned()
            .for_each(|packet| capture.add(packet));
        capture
    });
    let mut only_v6 = Capture::new("IPv6", 229);
    only_v6.extend(packets[2..].to_vec());
    let mut captures = vec![only_v6, families(0, &packets), families(108, &packets)];
    captures.extend([ppp(&packets), cooked(113, &packets), cooked(276, &packets)]);
    captures.extend(raw);
    captures
}

/// BSD's loopback: an address family before the packet, in one of two byte orders or in the network's.
fn families(link_type: u32, packets: &[Vec<u8>]) -> Capture {
    let mut capture = Capture::new("family", link_type);
    for family in [0u32, 1, 2, 10, 24, 28, 30, 0x0800] {
        for packet in packets {
            capture.add([&family.to_be_bytes()[..], packet].concat());
            if link_type == 0 {
                capture.add([&family.to_le_bytes()[..], packet].concat());
            }
        }
    }
    capture
}

fn ppp(packets: &[Vec<u8>]) -> Capture {
    let mut capture = Capture::new("PPP", 9);
    for (packet, number) in packets.iter().zip([0x21, 0x21, 0x57, 0x57]) {
        capture.add([&[0xff, 3, 0, number][..], packet].concat());
        capture.add([&[0, number][..], packet].concat());
    }
    capture.add(vec![0xff, 3, 0xc0, 0x21, 1, 1, 0, 4]);
    capture
}

/// What Linux captures on "any", in its first and its second form.
fn cooked(link_type: u32, packets: &[Vec<u8>]) -> Capture {
    let mut capture = Capture::new("cooked", link_type);
    let header = |protocol: u16, kind: u8| {
        let [high, low] = protocol.to_be_bytes();
        match link_type {
            113 => vec![0, kind, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, high, low],
            _ => vec![
                high, low, 0, 0, 0, 0, 0, 3, 0, 1, kind, 6, 2, 0, 0, 0, 0, 1, 0, 0,
            ],
        }
    };
    for kind in 0..5 {
        for (packet, protocol) in packets.iter().zip([0x0800, 0x0800, 0x86dd, 0x86dd]) {
            capture.add([&header(protocol, kind)[..], packet].concat());
        }
    }
    capture.add([&header(0x8100, 0)[..], &[0, 5, 8, 0], &packets[0]].concat());
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    capture.add([&header(4, 0)[..], &snap, &packets[1]].concat());
    capture.add([&header(0x0806, 0)[..], &[0; 28]].concat());
    let whole = [&header(0x0800, 0)[..], &packets[0]].concat();
    for kept in 0..whole.len() {
        capture.add_cut(&whole, kept);
    }
    capture
}

pub(super) fn tags() -> Capture {
    let mut capture = Capture::new("tags", ETHERNET);
    for builder in plain() {
        let b = || builder.clone();
        capture.add(b().vlan(5).frame());
        capture.add(b().vlan(0xe000).frame());
        capture.add(b().tag(ethertype::QINQ, 7).vlan(6).frame());
        capture.add(b().tag(0x9100, 7).vlan(6).frame());
        capture.add(b().tag(0x9200, 7).vlan(6).frame());
        for tags in [3, 19, 20, 21] {
            capture.add((0..tags).fold(b(), |frame, _| frame.vlan(5)).frame());
        }
        let tagged = b().tag(ethertype::QINQ, 7).vlan(6).frame();
        (0..tagged.len()).for_each(|kept| capture.add_cut(&tagged, kept));
    }
    labels(&mut capture);
    logical_links(&mut capture);
    capture
}

/// MPLS and PPPoE.
fn labels(capture: &mut Capture) {
    for (builder, ppp) in plain().iter().zip([0x21, 0x21, 0x57, 0x57]) {
        let frame = builder.frame();
        let packet = &frame[L3..];
        let label = [0, 1, 0, 64];
        let last = [0, 1, 1, 64];
        for ethertype in [0x8847, 0x8848] {
            capture.add(ethernet(ethertype, &[&last[..], packet].concat()));
            capture.add(ethernet(
                ethertype,
                &[&label[..], &label, &last, packet].concat(),
            ));
            capture.add(ethernet(ethertype, &label));
        }
        let [high, low] = u16::try_from(packet.len() + 2)
            .expect("a short one")
            .to_be_bytes();
        let session = [0x11, 0, 0, 1, high, low, 0, ppp];
        capture.add(ethernet(0x8864, &[&session[..], packet].concat()));
        capture.add(ethernet(0x8863, &[&session[..], packet].concat()));
    }
}

/// Lengths instead of types, and LLC behind them.
fn logical_links(capture: &mut Capture) {
    let frame = tcp(9, V4).frame();
    let packet = &frame[L3..];
    for llc in [
        &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..],
        &[0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0],
        &[0xaa, 0xaa, 3, 0, 0, 0x0c, 8, 0],
        &[6, 6, 3],
        &[0x42, 0x42, 3],
        &[0xff, 0xff],
    ] {
        let body = [llc, packet].concat();
        let length = u16::try_from(body.len()).expect("a short one");
        capture.add(ethernet(length, &body));
        capture.add(ethernet(1400, &body));
        capture.add(ethernet(1501, &body));
        let [high, low] = length.to_be_bytes();
        capture.add(ethernet(0x8100, &[&[0, 5, high, low][..], &body].concat()));
    }
}

pub(super) fn ethernet(ethertype: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(body);
    frame
}
