//! Each way that a frame can go, its bytes, and its counter.

use lpm::{Layout4, Rib};
use packet::build::{self, Builder, Extension};
use packet::ipv4;
use router::forward::{Adjacency, Family, Forwarding, Member, Plane as _, Punt};
use router::policy::{Pair, Place, Policy, PortPolicy, ReversePath};
use router::xdp::{End, Settings, Xdp};

use super::rig::{
    DROP, INGRESS, NEIGHBOUR, OURS, OUT, Outcome, PASS, REDIRECT, SENDER, Space, hop, run,
};

const V4: [&str; 2] = ["198.51.100.1", "203.0.113.9"];
const V6: [&str; 2] = ["2001:db8:1::1", "2001:db8:2::9"];

/// Next hops of both families: 1 sends, 2 drops, 3 to 6 punt, 7 is a group of 1 and 8, 8 sends tagged.
fn plane(space: &Space) -> Xdp {
    let v4 = [
        ("203.0.113.0/24", 1),
        ("203.0.113.128/25", 2),
        ("192.0.2.0/30", 3),
        ("192.0.2.4/30", 4),
        ("192.0.2.8/30", 5),
        ("192.0.2.12/30", 6),
        ("192.0.2.16/28", 7),
        ("192.0.2.32/30", 8),
        ("192.0.2.36/30", 9),
    ];
    let v6 = [
        ("2001:db8:2::/48", 1),
        ("2001:db8:2:8000::/49", 2),
        ("2001:db8:3::/48", 3),
        ("2001:db8:4::/48", 4),
        ("2001:db8:5::/48", 5),
        ("2001:db8:6::/48", 6),
        ("2001:db8:7::/48", 7),
        ("2001:db8:8::/48", 8),
        ("2001:db8:9::/48", 9),
    ];
    let mut rib4 = Rib::new();
    for (prefix, number) in v4 {
        rib4.insert(prefix.parse().unwrap(), hop(number));
    }
    let mut rib6 = Rib::new();
    for (prefix, number) in v6 {
        rib6.insert(prefix.parse().unwrap(), hop(number));
    }
    let mut xdp = space.start(&Settings::default(), rib4, rib6);
    let tagged = Adjacency {
        vlan: Some(77),
        mtu: 1400,
        ..space.adjacency()
    };
    let member = |number, weight| Member {
        hop: hop(number),
        weight,
    };
    for family in [Family::V4, Family::V6] {
        for (number, to) in [
            (1, Forwarding::Neighbour(space.adjacency())),
            (2, Forwarding::Drop),
            (3, Forwarding::Punt(Punt::Local)),
            (4, Forwarding::Punt(Punt::Refused)),
            (5, Forwarding::Punt(Punt::Unresolved)),
            (6, Forwarding::Punt(Punt::Device)),
            (7, Forwarding::Group(vec![member(1, 1), member(8, 3)])),
            (8, Forwarding::Neighbour(tagged)),
        ] {
            space.next_hop(&mut xdp, family, number, &to);
        }
    }
    xdp
}

fn addresses(family: Family) -> [&'static str; 2] {
    match family {
        Family::V4 => V4,
        Family::V6 => V6,
    }
}

fn from_sender(packet: Builder) -> Builder {
    packet.macs(SENDER, OURS)
}

pub fn udp(source: &str, destination: &str) -> Builder {
    let at = |address: &str, port| (address.parse::<std::net::IpAddr>().unwrap(), port).into();
    from_sender(build::udp(at(source, 4000), at(destination, 5000))).payload(vec![0x55; 64])
}

/// As it is sent to the neighbour: other link-layer addresses, one hop less.
fn sent(packet: Builder, ttl: u8) -> Vec<u8> {
    packet.ttl(ttl).macs(OUT, NEIGHBOUR).frame()
}

fn forwarded(frame: Vec<u8>) -> Outcome {
    Outcome {
        verdict: REDIRECT,
        end: End::Forwarded,
        frame,
    }
}

fn punted(end: End, frame: Vec<u8>) -> Outcome {
    Outcome {
        verdict: PASS,
        end,
        frame,
    }
}

#[test]
fn packets_leave_as_the_kernel_would_send_them() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let xdp = plane(&space);
    for family in [Family::V4, Family::V6] {
        let [source, destination] = addresses(family);
        let packet = || udp(source, destination);
        for ttl in [2, 64, 255] {
            let frame = packet().ttl(ttl).tos(0xb8).identification(ttl.into());
            let wanted = sent(packet().tos(0xb8).identification(ttl.into()), ttl - 1);
            assert_eq!(run(&space, &xdp, &frame.frame()), forwarded(wanted));
        }
        // Every checksum that a header can have.
        for identification in 0..2048 {
            let packet = || packet().identification(identification * 32 + 7);
            let outcome = run(&space, &xdp, &packet().ttl(64).frame());
            assert_eq!(outcome, forwarded(sent(packet(), 63)));
        }
        let longest =
            || packet().payload(vec![1; 1500 - if family == Family::V4 { 28 } else { 48 }]);
        let outcome = run(&space, &xdp, &longest().ttl(64).frame());
        assert_eq!(outcome, forwarded(sent(longest(), 63)));
    }
    // Beyond Ethernet's least frame, what is behind the packet is not sent on.
    let packet = || udp(V4[0], V4[1]).ttl(64);
    let outcome = run(&space, &xdp, &packet().padding(9).frame());
    assert_eq!(outcome, forwarded(sent(packet(), 63)));
    let short = || packet().payload(vec![]);
    let outcome = run(&space, &xdp, &short().padding(30).frame());
    assert_eq!(outcome.frame, sent(short().padding(18), 63));
    assert_eq!(outcome.frame.len(), 60);
    // Protocols and fragments that no rule asks for.
    let [source, destination] = V4.map(|address| address.parse().unwrap());
    for packet in [
        || udp(V4[0], V4[1]).fragment(0, true),
        || udp(V4[0], V4[1]).fragment(185, false),
        || {
            udp(V6[0], V6[1]).extension(Extension::Fragment {
                offset: 185,
                more: true,
            })
        },
        || udp(V6[0], V6[1]).extension(Extension::DestinationOptions(2)),
    ] {
        let outcome = run(&space, &xdp, &packet().ttl(9).frame());
        assert_eq!(outcome, forwarded(sent(packet(), 8)));
    }
    let other = || from_sender(build::other(source, destination, 50)).payload(vec![2; 40]);
    let outcome = run(&space, &xdp, &other().ttl(9).frame());
    assert_eq!(outcome, forwarded(sent(other(), 8)));
}

#[test]
fn tags_are_taken_away_added_and_changed() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let xdp = plane(&space);
    for (source, plain, tagged) in [
        (V4[0], V4[1], "192.0.2.33"),
        (V6[0], V6[1], "2001:db8:8::1"),
    ] {
        let to = |destination| udp(source, destination).ttl(64);
        for tags in [&[][..], &[7], &[0], &[0x6007], &[9, 8]] {
            let with = |packet: Builder| tags.iter().fold(packet, |packet, tag| packet.vlan(*tag));
            let outcome = run(&space, &xdp, &with(to(plain)).frame());
            assert_eq!(outcome, forwarded(sent(to(plain), 63)), "{tags:?}");
            let outcome = run(&space, &xdp, &with(to(tagged)).frame());
            assert_eq!(
                outcome,
                forwarded(sent(to(tagged).vlan(77), 63)),
                "{tags:?}"
            );
        }
        for tags in [&[6][..], &[9], &[7, 8]] {
            let frame = tags.iter().fold(to(plain), |packet, tag| packet.vlan(*tag));
            let frame = frame.frame();
            let outcome = run(&space, &xdp, &frame);
            assert_eq!(outcome, punted(End::NotOurs, frame));
        }
    }
}

#[test]
fn what_a_route_says_is_done_and_counted() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let xdp = plane(&space);
    for (source, destinations) in [
        (
            V4[0],
            [
                "203.0.113.129",
                "192.0.2.1",
                "192.0.2.5",
                "192.0.2.9",
                "192.0.2.13",
                "192.0.2.37",
                "8.8.8.8",
            ],
        ),
        (
            V6[0],
            [
                "2001:db8:2:8000::1",
                "2001:db8:3::1",
                "2001:db8:4::1",
                "2001:db8:5::1",
                "2001:db8:6::1",
                "2001:db8:9::1",
                "2001:4860::1",
            ],
        ),
    ] {
        let ends = [
            End::DroppedByRoute,
            End::Local,
            End::Refused,
            End::Unresolved,
            End::RouteDevice,
            End::NoMeaning,
            End::NoRoute,
        ];
        for (destination, end) in destinations.into_iter().zip(ends) {
            let frame = udp(source, destination).ttl(64).frame();
            let outcome = run(&space, &xdp, &frame);
            let verdict = if end.is_punt() { PASS } else { DROP };
            assert_eq!(
                outcome,
                Outcome {
                    verdict,
                    end,
                    frame
                },
                "{destination}"
            );
        }
    }
}

#[test]
fn what_the_kernel_must_see_it_sees_as_it_came() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let xdp = plane(&space);
    let v4 = || udp(V4[0], V4[1]).ttl(64);
    let v6 = || udp(V6[0], V6[1]).ttl(64);
    let to_mac = |mac| v4().macs(SENDER, mac);
    let mut cases = vec![
        (End::TtlExpired, v4().ttl(1).frame()),
        (End::TtlExpired, v6().ttl(0).frame()),
        (End::TooLong, v4().payload(vec![0; 1473]).frame()),
        (End::TooLong, v6().payload(vec![0; 1453]).frame()),
        (End::Options, v4().options(1).frame()),
        (End::Options, v6().extension(Extension::HopByHop(1)).frame()),
        (End::NotOurs, to_mac([2, 0, 0, 0, 0, 9]).frame()),
        (End::NotUnicast, to_mac([0xff; 6]).frame()),
        (End::NotUnicast, udp(V4[0], "224.0.0.5").frame()),
        (End::NotUnicast, udp(V4[0], "255.255.255.255").frame()),
        (End::NotUnicast, udp(V6[0], "ff02::1").frame()),
        (End::NotUnicast, udp(V6[0], "fe80::1").frame()),
        (End::NotIp, arp()),
        (End::Malformed, v4().frame()[..30].to_vec()),
        (End::Malformed, bad_checksum(&v4())),
        // This host's own address, as seen from outside.
        (End::Martian, udp("192.0.2.1", V4[1]).frame()),
        (End::Martian, udp("2001:db8:3::1", V6[1]).frame()),
    ];
    for source in ["0.0.0.0", "127.0.0.1", "224.1.1.1", "255.255.255.255"] {
        cases.push((End::Martian, udp(source, V4[1]).frame()));
    }
    for source in ["::", "::1", "ff02::1", "fe80::1", "::ffff:1.2.3.4"] {
        cases.push((End::Martian, udp(source, V6[1]).frame()));
    }
    cases.push((End::Martian, udp(V4[0], "127.0.0.1").frame()));
    for (end, frame) in &cases {
        let outcome = run(&space, &xdp, frame);
        assert_eq!(outcome, punted(*end, frame.clone()));
    }
    let counters = xdp.counters().unwrap();
    assert_eq!(counters.received().packets, cases.len() as u64);
    let bytes: usize = cases.iter().map(|(_, frame)| frame.len()).sum();
    assert_eq!(counters.received().bytes, bytes as u64);
}

#[test]
fn flows_of_a_group_keep_their_way() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = plane(&space);
    for family in [Family::V4, Family::V6] {
        let destination = match family {
            Family::V4 => "192.0.2.17",
            Family::V6 => "2001:db8:7::1",
        };
        let ways = |xdp: &Xdp| -> Vec<bool> {
            let flow = |port| {
                let at = |address: &str, port| {
                    (address.parse::<std::net::IpAddr>().unwrap(), port).into()
                };
                let source = at(addresses(family)[0], port);
                let packet = from_sender(build::udp(source, at(destination, 53))).ttl(64);
                let outcome = run(&space, xdp, &packet.frame());
                assert_eq!(outcome.end, End::Forwarded);
                outcome.frame[12..14] == [0x81, 0]
            };
            (1000..2000).map(flow).collect()
        };
        let before = ways(&xdp);
        let tagged = before.iter().filter(|tagged| **tagged).count();
        // 750 is the mean, of a standard deviation of 14.
        assert!((680..820).contains(&tagged), "{tagged}");
        assert_eq!(ways(&xdp), before);
        let member = |number, weight| Member {
            hop: hop(number),
            weight,
        };
        // A member more: flows go to it, or stay.
        let more = vec![member(1, 1), member(8, 3), member(5, 1)];
        space.next_hop(&mut xdp, family, 7, &Forwarding::Group(more));
        let both = vec![member(1, 1), member(8, 3)];
        space.next_hop(&mut xdp, family, 7, &Forwarding::Group(both));
        let after = ways(&xdp);
        let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(changed < 150, "{changed}");
    }
}

#[test]
fn routers_with_other_seeds_share_flows_out_otherwise() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let members = [1, 2].map(|number| Member {
        hop: hop(number),
        weight: 1,
    });
    for (family, source, destination) in [
        (Family::V4, V4[0], "192.0.2.1"),
        (Family::V6, V6[0], "2001:db8:7::1"),
    ] {
        let ways = |seed| -> Vec<u8> {
            let settings = Settings {
                seed,
                ..Settings::default()
            };
            let (mut v4, mut v6) = (Rib::new(), Rib::new());
            v4.insert("192.0.2.0/24".parse().unwrap(), hop(3));
            v6.insert("2001:db8:7::/48".parse().unwrap(), hop(3));
            let mut xdp = space.start(&settings, v4, v6);
            for number in [1, 2] {
                let to = Adjacency {
                    destination: [2, 0, 0, 0, 0, number],
                    ..space.adjacency()
                };
                space.next_hop(&mut xdp, family, number.into(), &Forwarding::Neighbour(to));
            }
            space.next_hop(&mut xdp, family, 3, &Forwarding::Group(members.to_vec()));
            let flow = |port| {
                let at = |address: &str, port| {
                    (address.parse::<std::net::IpAddr>().unwrap(), port).into()
                };
                let packet = build::udp(at(source, port), at(destination, 53));
                run(&space, &xdp, &from_sender(packet).ttl(64).frame()).frame[5]
            };
            (1000..2000).map(flow).collect()
        };
        let first = ways(1);
        assert_eq!(first, ways(1), "the same seed");
        // Of two routers behind each other, the second still shares out what the first sends one way.
        let pairs = first.into_iter().zip(ways(0x9c1a_52f0_73be_4d86));
        let second = pairs
            .filter(|(first, _)| *first == 1)
            .map(|(_, second)| second);
        let second: Vec<u8> = second.collect();
        let one = second.iter().filter(|way| **way == 1).count();
        assert!(
            (2..=3).contains(&(5 * one / second.len())),
            "{one} of {}",
            second.len()
        );
    }
}

/// What comes by VLAN 7 of the loopback and leaves by the device is the plane's, of IPv6 alone.
#[test]
fn a_policy_says_what_is_left_to_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = plane(&space);
    let place = |ifindex, vlan| Place { ifindex, vlan };
    let port = PortPolicy {
        by_pair: [true; 2],
        ..PortPolicy::default()
    };
    let policy = Policy {
        ports: [
            (place(INGRESS, None), PortPolicy::default()),
            (place(INGRESS, Some(7)), port),
        ]
        .into(),
        pairs: [Pair {
            from: place(INGRESS, Some(7)),
            to: place(space.out, None),
            family: Family::V6,
        }]
        .into(),
    };
    space.run(|| xdp.set_policy(policy.clone())).unwrap();
    let end = |xdp: &Xdp, source: &str, destination: &str, tags: &[u16]| {
        let packet = tags
            .iter()
            .fold(udp(source, destination), |packet, tag| packet.vlan(*tag));
        run(&space, xdp, &packet.ttl(64).frame()).end
    };
    for ([source, destination], tagged, by_seven, by_nine) in [
        (V4, "192.0.2.33", End::Policy, End::Policy),
        (V6, "2001:db8:8::1", End::Forwarded, End::Policy),
    ] {
        assert_eq!(end(&xdp, source, destination, &[]), End::Forwarded);
        assert_eq!(end(&xdp, source, destination, &[7]), by_seven);
        // By VLAN 77 of the same device.
        assert_eq!(end(&xdp, source, tagged, &[7]), End::Policy);
        // A port that the policy does not name.
        assert_eq!(end(&xdp, source, destination, &[9, 8]), by_nine);
    }
    let open = Policy {
        ports: policy
            .ports
            .keys()
            .map(|port| (*port, PortPolicy::default()))
            .collect(),
        pairs: Default::default(),
    };
    space.run(|| xdp.set_policy(open)).unwrap();
    assert_eq!(end(&xdp, V4[0], V4[1], &[7]), End::Forwarded);
    space.run(|| xdp.withhold(Family::V4, true)).unwrap();
    assert_eq!(end(&xdp, V4[0], V4[1], &[7]), End::Policy);
    assert_eq!(end(&xdp, V6[0], V6[1], &[7]), End::Forwarded);
    // What leads nowhere by the plane's routes may lead somewhere by the kernel's.
    assert_eq!(end(&xdp, V4[0], "203.0.113.129", &[]), End::Policy);
    space.run(|| xdp.withhold(Family::V4, false)).unwrap();
    assert_eq!(end(&xdp, V4[0], "203.0.113.129", &[]), End::DroppedByRoute);
}

#[test]
fn sources_have_to_be_where_the_kernel_wants_them() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = plane(&space);
    // To a neighbour, to several, a neighbour unknown, refused, nowhere, and without a route.
    let sources = [
        ("203.0.113.1", true),
        ("192.0.2.17", true),
        ("192.0.2.9", true),
        ("192.0.2.5", false),
        ("203.0.113.130", false),
        ("198.51.100.1", false),
    ];
    let mut set = |reverse_path| {
        let port = PortPolicy {
            reverse_path,
            ..PortPolicy::default()
        };
        let place = Place {
            ifindex: INGRESS,
            vlan: None,
        };
        let policy = Policy {
            ports: [(place, port)].into(),
            pairs: Default::default(),
        };
        space.run(|| xdp.set_policy(policy)).unwrap();
        sources.map(|(source, _)| run(&space, &xdp, &udp(source, V4[1]).ttl(64).frame()).end)
    };
    assert_eq!(set(ReversePath::Off), [End::Forwarded; 6]);
    let loose = sources.map(|(_, found)| {
        if found {
            End::Forwarded
        } else {
            End::ReversePath
        }
    });
    assert_eq!(set(ReversePath::Loose), loose);
    // All sources are behind another device.
    assert_eq!(set(ReversePath::Strict), [End::ReversePath; 6]);
    let frame = udp(V6[0], V6[1]).ttl(64).frame();
    assert_eq!(
        run(&space, &xdp, &frame).end,
        End::Forwarded,
        "IPv6 has none"
    );
}

#[test]
fn a_next_hop_changes_as_often_as_it_likes() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let settings = Settings {
        neighbours: 4,
        groups: 2,
        layout4: Layout4::Bytes,
        ..Settings::default()
    };
    let mut rib = Rib::new();
    rib.insert("203.0.113.0/24".parse().unwrap(), hop(1));
    let mut xdp = space.start(&settings, rib, Rib::new());
    for round in 0..64 {
        let to = Adjacency {
            destination: [2, 0, 0, 0, 1, round],
            ..space.adjacency()
        };
        let to = Forwarding::Neighbour(to);
        let members = vec![Member {
            hop: hop(1),
            weight: 1,
        }];
        space.next_hop(&mut xdp, Family::V4, 1, &to);
        space.next_hop(&mut xdp, Family::V4, 2, &Forwarding::Group(members));
        let outcome = run(&space, &xdp, &udp(V4[0], V4[1]).ttl(9).frame());
        assert_eq!(outcome.frame[..6], [2, 0, 0, 0, 1, round]);
    }
}

pub fn arp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&OURS);
    frame[6..12].copy_from_slice(&SENDER);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

fn bad_checksum(packet: &Builder) -> Vec<u8> {
    let mut frame = packet.frame();
    let mut ip = ipv4::Packet::new_checked(&mut frame[14..]).unwrap();
    let wrong = ip.checksum() ^ 1;
    ip.set_checksum(wrong);
    frame
}
