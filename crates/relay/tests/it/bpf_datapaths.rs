//! Every kernel datapath sends the same copies and counts the same refusals, whatever arrives: frames
//! come from a sender's raw and ordinary sockets, and are read where the receivers are.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use netdev::{NextHop, UnresolvedReason};
use relay::PuntKind;
use relay::counters::DropReason;
use relay::handover::ForwardingPath;
use relay::plan::{Limits, Prefix, SourcePolicy, Stream};
use relay::tc::Tc;

use crate::common::frame::{Checksum, Frame};
use crate::common::plan_rig::{
    DATAPATHS, INGEST, INGEST6, Rig, SENDER, SENDER6, assert_identities, await_handled, dropped,
    everywhere, plan, punt, stream,
};
use crate::common::space::{TIMEOUT, recv_datagram};

/// Subscribers 0..n of IPv4 and n..2n of IPv6.
fn both_families(rig: &Rig, ingest: &str, each: u32) -> Stream {
    let mut stream = rig.stream(0, ingest);
    stream.subscribers = (0..each)
        .map(|i| rig.subscriber(i, true))
        .chain((each..2 * each).map(|i| rig.subscriber(i, false)))
        .collect();
    stream
}

#[test]
fn frames_of_every_size_and_family_reach_subscribers_of_both() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (datapath, sender, ingest) in everywhere() {
        let running = rig.start(datapath, &plan(&both_families(&rig, ingest, 3)));
        let mut sent = 0;
        for size in [0, 1, 2, 3, 5, 31, 32, 33, 63, 200, 511, 1199, 1200, 1444] {
            for checksum in [Checksum::Right, Checksum::Partial] {
                if checksum == Checksum::Partial && datapath.name() == "tc" {
                    // The stack marks a partial sum on its buffer; a raw frame cannot.
                    continue;
                }
                for tags in [
                    vec![],
                    vec![(0x8100, 0xe000)],
                    vec![(0x88a8, 0), (0x8100, 0)],
                ] {
                    let mut frame = Frame::new(sender, ingest, size);
                    (frame.checksum, frame.tags) = (checksum, tags);
                    frame.padding = 18_usize.saturating_sub(size);
                    rig.send(&frame);
                    sent += 1;
                    for (i, arrived) in (0..).zip(capture.take_by_port(6)) {
                        let expected = rig.copy(i, i < 3, &frame);
                        assert_eq!(arrived, expected, "{} {frame:?}", datapath.name());
                    }
                }
            }
        }
        let counters = running.stop();
        assert_identities(stream(&counters));
        assert_eq!(
            stream(&counters).forwarded.packets,
            sent,
            "{}",
            datapath.name()
        );
    }
    assert_eq!(capture.rest(), []);
}

#[test]
fn an_ordinary_sender_is_relayed() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (datapath, sender, ingest) in everywhere() {
        let running = rig.start(datapath, &plan(&both_families(&rig, ingest, 2)));
        let socket = rig.sender.run(|| UdpSocket::bind(sender).unwrap());
        for size in [1, 700, 1452] {
            socket.send_to(&vec![0x5a; size], ingest).unwrap();
            let arrived = capture.take(4);
            assert!(
                arrived
                    .iter()
                    .all(|arrived| arrived.payload == vec![0x5a; size])
            );
        }
        let counters = running.stop();
        let counters = stream(&counters);
        assert_identities(counters);
        assert!(
            counters
                .subscribers
                .values()
                .all(|one| one.delivered.packets == 3)
        );
    }
}

#[test]
fn a_right_checksum_that_looks_unfinished_comes_out_right() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (datapath, sender, ingest) in everywhere() {
        let mut relayed = both_families(&rig, ingest, 1);
        relayed.diverted = true;
        let running = rig.start(datapath, &plan(&relayed));
        let frames = [2, 3, 60, 1201].map(|size| Frame::new(sender, ingest, size).ambiguous());
        for frame in &frames {
            rig.send(frame);
            assert_eq!(
                punt(&running).payload.len(),
                frame.payload.len(),
                "{}",
                datapath.name()
            );
        }
        let path = running.fast_path().unwrap();
        path.publish_done(relayed.id, 4).unwrap();
        for frame in &frames {
            rig.send(frame);
            for (i, arrived) in (0..).zip(capture.take_by_port(2)) {
                let expected = rig.copy(i, i < 1, frame);
                assert_eq!(arrived, expected, "{} {frame:?}", datapath.name());
            }
        }
        assert_identities(stream(&running.stop()));
    }
    assert_eq!(capture.rest(), []);
}

/// What a spoiled frame is counted as; `None`: passed up the stack.
fn refusals() -> Vec<(&'static str, Frame, Option<DropReason>)> {
    let v4 = |spoil: fn(&mut Frame)| spoiled(Frame::new(SENDER, INGEST, 100), spoil);
    let v6 = |spoil: fn(&mut Frame)| spoiled(Frame::new(SENDER6, INGEST6, 100), spoil);
    let malformed = Some(DropReason::Malformed);
    let wrong = Some(DropReason::BadChecksum);
    let last_hop = Some(DropReason::TtlExceeded);
    vec![
        ("wrong sum", v4(|f| f.checksum = Checksum::Wrong), wrong),
        ("wrong sum", v6(|f| f.checksum = Checksum::Wrong), wrong),
        ("no sum", v6(|f| f.checksum = Checksum::None), wrong),
        ("IP too long", v4(|f| f.network_lie = 40), malformed),
        ("IP too long", v6(|f| f.network_lie = 40), malformed),
        ("UDP too long", v4(|f| f.udp_lie = 1), malformed),
        ("UDP too long", v6(|f| f.udp_lie = 1), malformed),
        ("UDP too short", v4(|f| f.udp_lie = -101), malformed),
        ("last hop", v4(|f| f.ttl = 1), last_hop),
        ("last hop", v6(|f| f.ttl = 1), last_hop),
        ("options", v4(|f| f.options = 4), None),
        ("fragment", v4(|f| f.fragment = 0x2000), None),
    ]
}

fn spoiled(mut frame: Frame, spoil: fn(&mut Frame)) -> Frame {
    spoil(&mut frame);
    frame
}

#[test]
fn what_is_not_relayed_is_counted_under_its_reason() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        for (what, frame, reason) in refusals() {
            let ingest = frame.destination.to_string();
            let running = rig.start(datapath, &plan(&both_families(&rig, &ingest, 1)));
            rig.send(&frame);
            // The one after it shows that it has been seen.
            rig.send(&Frame::new(&frame.source.to_string(), &ingest, 60));
            assert!(
                capture
                    .take(2)
                    .iter()
                    .all(|arrived| arrived.payload.len() == 60),
                "{what}"
            );
            await_handled(&running, 2);
            let counters = running.stop();
            let counters = stream(&counters);
            let name = datapath.name();
            assert_identities(counters);
            assert_eq!(counters.received.packets, 2, "{name}: {what}");
            match reason {
                Some(reason) => assert_eq!(dropped(counters, reason), 1, "{name}: {what}"),
                None => assert_eq!(counters.passed.packets, 1, "{name}: {what}"),
            }
        }
    }
}

#[test]
fn a_missing_ipv4_checksum_is_computed() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        let running = rig.start(datapath, &plan(&both_families(&rig, INGEST, 1)));
        rig.send(&Frame {
            checksum: Checksum::None,
            ..Frame::new(SENDER, INGEST, 99)
        });
        assert_eq!(
            capture.take(2).len(),
            2,
            "and read() has found the sums right"
        );
        drop(running);
    }
}

/// A sender, another of the same address, and prefixes with how many of two datagrams they deny.
type Sources = (
    &'static str,
    &'static str,
    &'static str,
    [(&'static str, u8, usize); 3],
);

const SOURCES: [Sources; 2] = [
    (
        SENDER,
        "10.1.0.1:4001",
        INGEST,
        [("10.1.0.0", 24, 0), ("10.9.0.0", 16, 2), ("::", 0, 2)],
    ),
    (
        SENDER6,
        "[fd01::1]:4001",
        INGEST6,
        [
            ("fd01::", 64, 0),
            ("fd01:0:0:1::", 64, 2),
            ("0.0.0.0", 0, 2),
        ],
    ),
];

#[test]
fn sources_are_policed() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (sender, other, ingest, prefixes) in SOURCES {
        let latch = SourcePolicy::Latch {
            timeout: Duration::from_secs(60),
            held_by: None,
        };
        let policies = prefixes.map(|(address, length, denied)| {
            let address = address.parse().unwrap();
            (
                SourcePolicy::Allow(vec![Prefix { address, length }]),
                denied,
            )
        });
        for (policy, denied) in policies.into_iter().chain([(latch, 1)]) {
            for datapath in DATAPATHS {
                let mut relayed = both_families(&rig, ingest, 1);
                relayed.source = policy.clone();
                let running = rig.start(datapath, &plan(&relayed));
                rig.send(&Frame::new(sender, ingest, 60));
                rig.send(&Frame::new(other, ingest, 60));
                capture.take((2 - denied) * 2);
                await_handled(&running, 2);
                let counters = running.stop();
                let refused = dropped(stream(&counters), DropReason::SourceDenied);
                assert_eq!(refused, denied as u64, "{policy:?}");
                assert_identities(stream(&counters));
            }
        }
    }
}

#[test]
fn rates_are_policed() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (sender, _, ingest, _) in SOURCES {
        for (stream_pps, source_pps) in [(Some(1), None), (None, Some(1))] {
            for datapath in DATAPATHS {
                let mut relayed = both_families(&rig, ingest, 1);
                relayed.limits = Limits {
                    stream_pps,
                    source_pps,
                };
                let running = rig.start(datapath, &plan(&relayed));
                for _ in 0..3 {
                    rig.send(&Frame::new(sender, ingest, 60));
                }
                capture.take(2);
                await_handled(&running, 3);
                let counters = running.stop();
                assert!(dropped(stream(&counters), DropReason::RateLimited) >= 1);
                assert_identities(stream(&counters));
                // On a slow machine a second token may have come.
                capture.rest();
            }
        }
    }
}

#[test]
fn copies_that_cannot_be_made_are_counted_for_their_subscriber() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        let mut relayed = both_families(&rig, INGEST, 2);
        if let NextHop::Ready { mtu, .. } = &mut relayed.subscribers[1].next_hop {
            *mtu = 1000;
        }
        let gateway = relayed.subscribers[3].destination.ip();
        relayed.subscribers[3].next_hop = NextHop::Unresolved(UnresolvedReason::NoNeighbour {
            ifindex: rig.out[1],
            gateway,
        });
        let running = rig.start(datapath, &plan(&relayed));
        rig.send(&Frame::new(SENDER, INGEST, 1200));
        let mut ports: Vec<u16> = capture
            .take(2)
            .iter()
            .map(|arrived| arrived.destination.port())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [7000, 7002], "{}", datapath.name());
        let counters = running.stop();
        let drops = |slot| &stream(&counters).subscribers[&slot].drops.0;
        assert_eq!(drops(101)[&DropReason::TooBig], 1);
        assert_eq!(drops(103)[&DropReason::NoNeighbour], 1);
        assert!(drops(100).is_empty() && drops(102).is_empty());
        assert_eq!(capture.rest(), []);
    }
}

#[test]
fn a_stream_is_taken_over_exactly_when_userspace_has_caught_up() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        let mut relayed = both_families(&rig, INGEST, 1);
        relayed.diverted = true;
        let running = rig.start(datapath, &plan(&relayed));
        let path = running.fast_path().unwrap();
        let send = |size| rig.send(&Frame::new(SENDER, INGEST, size));
        for size in [11, 12] {
            send(size);
            let punt = punt(&running);
            assert_eq!(punt.kind, PuntKind::Diverted);
            assert_eq!(punt.info.source, Some(SENDER.parse().unwrap()));
            assert_eq!(punt.payload.len(), size, "{}", datapath.name());
        }
        assert_eq!(path.diverted(relayed.id).unwrap(), 2);
        path.publish_done(relayed.id, 1).unwrap();
        send(13);
        assert_eq!(
            punt(&running).payload.len(),
            13,
            "one was not yet done with"
        );
        assert_eq!(
            path.forwarding_path(relayed.id).unwrap(),
            ForwardingPath::Diverted
        );
        assert_eq!(capture.rest(), []);
        path.publish_done(relayed.id, 3).unwrap();
        send(14);
        assert!(
            capture
                .take(2)
                .iter()
                .all(|arrived| arrived.payload.len() == 14)
        );
        assert_eq!(
            path.forwarding_path(relayed.id).unwrap(),
            ForwardingPath::Fast
        );
        assert_eq!(path.diverted(relayed.id).unwrap(), 3);
        path.pass(relayed.id).unwrap();
        send(15);
        assert_eq!(recv_datagram(&relayed.socket).0, 15);
        let counters = running.stop();
        assert_identities(stream(&counters));
        assert_eq!(stream(&counters).passed.packets, 3);
        assert_eq!(capture.rest(), []);
    }
}

#[test]
fn a_copy_reaches_userspace_with_the_senders_address() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        for (sender, ingest) in [(SENDER, INGEST), (SENDER6, INGEST6)] {
            let mut relayed = both_families(&rig, ingest, 2);
            let mut local = rig.subscriber(9, true);
            local.next_hop = NextHop::Unresolved(UnresolvedReason::Local);
            relayed.subscribers.push(local);
            let running = rig.start(datapath, &plan(&relayed));
            let only = running.fast_path().unwrap().userspace_only(relayed.id);
            assert_eq!(only.len(), 1, "{}", datapath.name());
            for size in [20, 600, 1400] {
                rig.send(&Frame::new(sender, ingest, size));
                let punt = punt(&running);
                assert_eq!(punt.kind, PuntKind::Copy);
                assert_eq!(punt.info.source, Some(sender.parse().unwrap()));
                assert_eq!(punt.payload.len(), size, "{}", datapath.name());
                assert!(
                    capture
                        .take(4)
                        .iter()
                        .all(|arrived| arrived.payload.len() == size)
                );
            }
            let counters = running.stop();
            assert_eq!(stream(&counters).copies_lost, 0);
            assert_eq!(stream(&counters).forwarded.packets, 3);
        }
    }
    assert_eq!(capture.rest(), []);
}

/// A machine that stops amid a burst makes a pause in it, after which frames may overtake others: so
/// not every burst has to be in order.
#[test]
fn bursts_keep_their_order_where_the_last_copy_may_go_directly() {
    const BURSTS: usize = 16;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    rig.use_one_queue();
    let burst: Vec<_> = (0..48)
        .map(|i| Frame::new(SENDER, INGEST, 1000 - i))
        .collect();
    let in_order = |_: &usize| {
        let relayed = rig.stream(1, INGEST);
        let running = rig.start(&Tc, &plan(&relayed));
        let fast = running.fast_path().unwrap();
        let way = || fast.last_copy(relayed.id).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while !way().contains("directly") {
            assert!(Instant::now() < deadline, "{}", way());
            std::thread::yield_now();
        }
        rig.send_at_one_go(&burst);
        let arrived = capture.take(burst.len());
        let mut pairs = arrived.iter().zip(&burst);
        pairs.all(|(one, sent)| one.payload == sent.payload)
    };
    let kept = (0..BURSTS).filter(in_order).count();
    assert!(kept > BURSTS / 2, "{kept} of {BURSTS} in order");
}
