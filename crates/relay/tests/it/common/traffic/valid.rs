//! Datagrams that are relayed, or refused although they are whole.

use packet::build::{Builder, Checksum, Extension, other};
use packet::{ethertype, protocol};
use relay::counters::DropReason;

use super::{Content, Ends, Fate, Item, numbered};
use crate::common::relay_rig::{INGRESS_MAC, SENDER_MAC};

const SIZES: [usize; 24] = [
    0, 1, 2, 3, 7, 18, 19, 31, 64, 65, 127, 200, 200, 201, 499, 512, 1000, 1001, 1199, 1200, 1399,
    1451, 1452, 0,
];
/// What still fits an IPv4 packet of 1500 bytes, and no IPv6 one.
const V4_ONLY_SIZES: [usize; 3] = [1453, 1471, 1472];

pub(super) fn items(ends: Ends) -> Vec<Item> {
    let mut items = sizes(ends);
    items.extend(fields(ends));
    items.extend(checksums(ends));
    items.extend(tags(ends));
    items.extend(shapes(ends));
    items.extend(fragments(ends));
    items
}

fn sizes(ends: Ends) -> Vec<Item> {
    let more = if ends.is_v4() {
        &V4_ONLY_SIZES[..]
    } else {
        &[]
    };
    let sizes = SIZES.iter().chain(more).enumerate();
    let item = |(at, size): (usize, &usize)| {
        let number = u16::try_from(at).unwrap();
        let what = format!("{size} bytes");
        Item::relayed(&what, ends.flow(at / 7), numbered(number, *size), |built| {
            built
        })
    };
    sizes.map(item).collect()
}

/// Every kind of DSCP, ECN and TTL.
fn fields(ends: Ends) -> Vec<Item> {
    let mut items = Vec::new();
    for (at, tos) in [1, 2, 3, 0x28, 0xb8, 0xb9, 0xfc, 0xff]
        .into_iter()
        .enumerate()
    {
        let payload = numbered(100 + u16::try_from(at).unwrap(), 100 + at);
        let mut item = Item::relayed("TOS", ends.flow(1), payload, |built| built.tos(tos));
        item.set(|content| content.tos = tos);
        items.push(item);
    }
    for (at, ttl) in [2, 3, 254, 255].into_iter().enumerate() {
        let payload = numbered(120 + u16::try_from(at).unwrap(), 90);
        let mut item = Item::relayed("TTL", ends.flow(2), payload, |built| built.ttl(ttl));
        item.set(|content| content.ttl = ttl - 1);
        items.push(item);
    }
    for ttl in [0, 1] {
        let frame = ends.datagram(numbered(130, 70)).ttl(ttl).frame();
        items.push(Item::new(
            "last hop",
            frame,
            Fate::Refused(DropReason::TtlExceeded, 70),
        ));
    }
    items
}

fn checksums(ends: Ends) -> Vec<Item> {
    let summed = |checksum| move |built: Builder| built.checksum(checksum);
    let refused = |size| Fate::Refused(DropReason::BadChecksum, size);
    let mut items = Vec::new();
    for (number, size) in [(200, 2), (201, 333), (202, 1452)] {
        let payload = || numbered(number, size);
        let mut partial = Item::relayed("partial", ends, payload(), summed(Checksum::Partial));
        partial.partial = true;
        items.push(partial);
        let absent = Item::relayed("no checksum", ends, payload(), summed(Checksum::Absent));
        items.push(match ends.is_v4() {
            true => absent,
            false => Item {
                fate: refused(size),
                ..absent
            },
        });
        let bad = ends.datagram(payload()).checksum(Checksum::Bad).frame();
        items.push(Item::new("wrong checksum", bad, refused(size)));
    }
    items
}

/// Only tags of no VLAN: the machine has none, and a frame of one is not for it.
fn tags(ends: Ends) -> Vec<Item> {
    type Change = fn(Builder) -> Builder;
    let (vlan, service) = (ethertype::VLAN, 0x88a8);
    let relayed: [(&str, Change); 3] = [
        ("priority tag", |built| built.tag(ethertype::VLAN, 0xe000)),
        ("service priority tag", |built| built.tag(0x88a8, 0x6000)),
        ("two priority tags", |built| {
            built.tag(0x88a8, 0).tag(ethertype::VLAN, 0)
        }),
    ];
    let mut items: Vec<Item> = relayed
        .into_iter()
        .zip(300..)
        .map(|((what, change), number)| {
            Item::relayed(what, ends, numbered(number, 150), change).alone()
        })
        .collect();
    for tags in [
        &[(vlan, 5)][..],
        &[(service, 6), (vlan, 5)],
        &[(vlan, 0), (vlan, 5)],
        &[(vlan, 5), (vlan, 0)],
    ] {
        let frame = tags
            .iter()
            .fold(
                ends.datagram(numbered(310, 60)),
                |built, (kind, control)| built.tag(*kind, *control),
            )
            .frame();
        items.push(Item::new("of a VLAN", frame, Fate::Nothing));
    }
    items
}

/// Options and extension headers, padding, and fields that copies do not take over.
fn shapes(ends: Ends) -> Vec<Item> {
    let relayed = |what, number, change: &dyn Fn(Builder) -> Builder| {
        Item::relayed(what, ends, numbered(number, 77), change)
    };
    let everywhere = [0xff; 6];
    let mut items = vec![
        relayed("padding", 400, &|built| built.padding(9)),
        relayed("broadcast frame", 401, &|built| {
            built.macs(SENDER_MAC, everywhere)
        })
        .alone(),
    ];
    if ends.is_v4() {
        items.extend([
            relayed("may be fragmented", 402, &|built| {
                built.dont_fragment(false)
            }),
            relayed("identification", 403, &|built| built.identification(0xabcd)),
            relayed("an option", 404, &|built| built.options(1)).alone(),
            relayed("ten options", 405, &|built| built.options(10)).alone(),
        ]);
    } else {
        let extended = |what, number, headers: &[Extension]| {
            let add = |built| {
                headers
                    .iter()
                    .fold(built, |built: Builder, one| built.extension(*one))
            };
            relayed(what, number, &add).alone()
        };
        let whole = Extension::Fragment {
            offset: 0,
            more: false,
        };
        items.extend([
            relayed("flow label", 410, &|built| built.flow_label(0x12345)),
            extended("hop by hop", 411, &[Extension::HopByHop(0)]),
            extended("options", 412, &[Extension::DestinationOptions(0)]),
            extended("routing", 413, &[Extension::Routing(0)]),
            extended("one fragment", 414, &[whole]),
            extended(
                "three headers",
                415,
                &[
                    Extension::HopByHop(0),
                    Extension::DestinationOptions(0),
                    whole,
                ],
            ),
        ]);
    }
    items
}

/// Datagrams in pieces, which the stack puts together.
fn fragments(ends: Ends) -> Vec<Item> {
    let pieces = |number: u16, size: usize, cut: usize| -> [Vec<u8>; 2] {
        let payload = numbered(number, size);
        let whole = ends.datagram(payload).frame();
        let transport = &whole[if ends.is_v4() { 34 } else { 54 }..];
        let (first, later) = transport.split_at(cut);
        let offset = u16::try_from(cut / 8).unwrap();
        [
            piece(ends, number, first, 0, true),
            piece(ends, number, later, offset, false),
        ]
    };
    let relayed = |number, size: usize| {
        let payload = numbered(number, size);
        Fate::Relayed(Content {
            payload,
            ttl: 63,
            tos: 0,
        })
    };
    let [first, later] = pieces(500, 600, 304);
    let [ahead, behind] = pieces(501, 801, 400);
    let [large, rest] = pieces(502, 2600, 1400);
    let [lost, _] = pieces(503, 500, 200);
    let [_, stray] = pieces(504, 500, 200);
    vec![
        Item::new("first fragment", first, Fate::Nothing).alone(),
        Item::new("last fragment", later, relayed(500, 600)).alone(),
        Item::new("last fragment first", behind, Fate::Nothing).alone(),
        Item::new("first fragment last", ahead, relayed(501, 801)).alone(),
        Item::new("of a large datagram", large, Fate::Nothing).alone(),
        Item::new("rest of a large datagram", rest, relayed(502, 2600)).alone(),
        Item::new("lone first fragment", lost, Fate::Nothing).alone(),
        Item::new("lone last fragment", stray, Fate::Nothing).alone(),
    ]
}

fn piece(ends: Ends, number: u16, bytes: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let built = other(ends.from.ip(), ends.to.ip(), protocol::UDP)
        .macs(SENDER_MAC, INGRESS_MAC)
        .identification(number)
        .payload(bytes);
    if ends.is_v4() {
        built.fragment(offset, more).frame()
    } else {
        built
            .extension(Extension::Fragment { offset, more })
            .frame()
    }
}

impl Item {
    fn set(&mut self, change: impl FnOnce(&mut Content)) {
        if let Fate::Relayed(content) = &mut self.fate {
            change(content);
        }
    }
}
