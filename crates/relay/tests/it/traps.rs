//! Conditions of devices, checksums and routes under which copies have been known to vanish: each
//! either does no harm, or is counted and told.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::time::Instant;

use netdev::{LinkSpec, NextHop, UnresolvedReason};
use nix::sys::socket::{setsockopt, sockopt};
use relay::counters::{DropReason, SubscriberCounters};
use relay::plan::{Stream, SubscriberId};
use relay::tc::Tc;
use relay::xdp::Xdp;
use relay::{PuntKind, Running};
use sys::ethtool::Ethtool;

use crate::common::frame::{Checksum, Frame};
use crate::common::plan_rig::{
    DATAPATHS, FAMILIES, INGEST, Rig, SENDER, assert_identities, everywhere, plan, punt, stream,
};
use crate::common::space::{Space, TIMEOUT, recv_datagram};

fn feature(space: &Space, device: &str, name: &str, on: bool) {
    space.run(|| {
        let device = Ethtool::open(device).unwrap();
        device.set_features(&[(name, on)]).unwrap();
    });
}

/// The subscribers' own sockets, in whose stack wrong checksums would be dropped.
fn receivers(rig: &Rig, stream: &Stream) -> Vec<UdpSocket> {
    stream
        .subscribers
        .iter()
        .map(|subscriber| rig.client.listen(subscriber.destination))
        .collect()
}

/// The next datagram's length at every receiver.
fn received_lengths(receivers: &[UdpSocket]) -> Vec<usize> {
    receivers
        .iter()
        .map(|socket| recv_datagram(socket).0)
        .collect()
}

fn subscriber(running: &Running, slot: u32) -> SubscriberCounters {
    let counters = running.counters();
    stream(&counters).subscribers[&slot].clone()
}

fn refused(running: &Running, slot: u32, reason: DropReason) -> u64 {
    let drops = subscriber(running, slot).drops;
    drops.0.get(&reason).copied().unwrap_or(0)
}

/// Waits until the fast path says so about subscriber 100.
fn wait_until_slow(running: &Running, stream: &Stream, slow: bool) -> String {
    let fast = running.fast_path().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let reason = fast.slow_reason(stream.id, SubscriberId(100));
        if reason.is_some() == slow {
            return reason.unwrap_or_default();
        }
        assert!(Instant::now() < deadline, "slow: {reason:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_receiver_without_xdp_and_gro_is_told_counted_and_taken_in_again() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    feature(&rig.client, "rx0", "rx-gro", false);
    let capture = rig.capture();
    let relayed = rig.stream(4, INGEST);
    let running = rig.start(&Xdp, &plan(&relayed));
    let reason = wait_until_slow(&running, &relayed, true);
    assert!(
        reason.contains("out0") && reason.contains("gro on"),
        "{reason}"
    );
    let send = |copies: usize| {
        rig.send(&Frame::new(SENDER, INGEST, 100));
        capture.take(copies);
    };
    send(2);
    for (slot, delivered) in [(100, 0), (101, 1), (102, 0), (103, 1)] {
        assert_eq!(subscriber(&running, slot).delivered.packets, delivered);
    }
    let by_userspace = running.fast_path().unwrap().userspace_only(relayed.id);
    assert_eq!(by_userspace, BTreeSet::from([100, 102].map(SubscriberId)));
    assert_eq!(punt(&running).kind, PuntKind::Copy);
    feature(&rig.client, "rx0", "rx-gro", true);
    wait_until_slow(&running, &relayed, false);
    send(4);
    feature(&rig.client, "rx0", "rx-gro", false);
    wait_until_slow(&running, &relayed, true);
    send(2);
    assert_eq!(punt(&running).kind, PuntKind::Copy);
    assert_eq!(capture.rest(), []);
    let counters = running.stop();
    assert_eq!(stream(&counters).forwarded.packets, 3);
    assert_eq!(stream(&counters).copies_lost, 0);
}

#[test]
fn tc_needs_nothing_of_a_receiver() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for name in ["rx0", "rx1"] {
        feature(&rig.client, name, "rx-gro", false);
    }
    let relayed = rig.stream(4, INGEST);
    let receivers = receivers(&rig, &relayed);
    let running = rig.start(&Tc, &plan(&relayed));
    rig.send(&Frame::new(SENDER, INGEST, 100));
    assert_eq!(received_lengths(&receivers), [100; 4]);
    drop(running);
}

#[test]
fn copies_that_find_a_full_device_are_counted_one_by_one() {
    const SUBSCRIBERS: u32 = 100;
    const DATAGRAMS: u32 = 64;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    let running = rig.start(&Xdp, &plan(&rig.stream(SUBSCRIBERS, INGEST)));
    let socket = rig.sender.run(|| UdpSocket::bind(SENDER).unwrap());
    // Segments arrive in one go: 3200 copies for each device before its queue of 256 is read.
    setsockopt(&socket, sockopt::UdpGsoSegment, &40).unwrap();
    socket
        .send_to(&[7; 40 * DATAGRAMS as usize], INGEST)
        .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while subscriber(&running, 199).delivered.packets + refused(&running, 199, DropReason::Transmit)
        < u64::from(DATAGRAMS)
    {
        assert!(Instant::now() < deadline, "the datagrams have not come");
        std::thread::yield_now();
    }
    let counters = running.stop();
    let mut arrived = BTreeMap::<u32, u64>::new();
    let delivered: u64 = stream(&counters)
        .subscribers
        .values()
        .map(|one| one.delivered.packets)
        .sum();
    for one in capture.take(delivered as usize) {
        *arrived
            .entry(u32::from(one.destination.port()) - 6900)
            .or_default() += 1;
    }
    assert_eq!(capture.rest(), []);
    for (slot, one) in &stream(&counters).subscribers {
        let delivered = one.delivered.packets;
        assert_eq!(delivered, arrived.get(slot).copied().unwrap_or(0), "{slot}");
        assert_eq!(
            delivered + one.drops.total(),
            u64::from(DATAGRAMS),
            "{slot}"
        );
        assert_eq!(one.delivered.bytes, 40 * delivered, "{slot}");
        assert!(
            one.drops
                .0
                .keys()
                .all(|reason| *reason == DropReason::Transmit)
        );
    }
    assert!(
        delivered < u64::from(SUBSCRIBERS * DATAGRAMS),
        "nothing overflowed"
    );
}

#[test]
fn checksums_that_senders_or_devices_leave_out_arrive_right() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for datapath in DATAPATHS {
        for offload in [true, false] {
            // Off: as a card that completes nothing.
            for out in ["out0", "out1"] {
                feature(&rig.relay, out, "tx-checksum-ip-generic", offload);
            }
            for (sender, ingest) in FAMILIES {
                let relayed = rig.stream(4, ingest);
                let receivers = receivers(&rig, &relayed);
                let running = rig.start(datapath, &plan(&relayed));
                let socket = rig.sender.run(|| UdpSocket::bind(sender).unwrap());
                socket.send_to(&[7; 601], ingest).unwrap();
                assert_eq!(
                    received_lengths(&receivers),
                    [601; 4],
                    "partial, {}",
                    datapath.name()
                );
                let mut frame = Frame::new(sender, ingest, 333);
                if ingest == INGEST {
                    frame.checksum = Checksum::None;
                }
                rig.send(&frame);
                assert_eq!(
                    received_lengths(&receivers),
                    [333; 4],
                    "none, {}",
                    datapath.name()
                );
                assert_identities(stream(&running.stop()));
            }
        }
    }
}

#[test]
fn forwarding_need_not_be_on() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let off = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].map(|setting| {
        let path = format!("/proc/sys/net/{setting}");
        rig.relay.run(|| {
            std::fs::write(&path, "0").unwrap();
            std::fs::read_to_string(&path).unwrap()
        })
    });
    assert_eq!(off, ["0\n", "0\n"]);
    for (datapath, sender, ingest) in everywhere() {
        let relayed = rig.stream(2, ingest);
        let receivers = receivers(&rig, &relayed);
        let running = rig.start(datapath, &plan(&relayed));
        rig.send(&Frame::new(sender, ingest, 100));
        assert_eq!(
            received_lengths(&receivers),
            [100; 2],
            "{}",
            datapath.name()
        );
        drop(running);
    }
}

#[test]
fn copies_wait_for_no_neighbour_and_go_once_there_is_one() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        let ready = rig.stream(4, INGEST);
        let mut missing = ready.clone();
        let gateway = ready.subscribers[0].destination.ip();
        let ifindex = rig.out[0];
        let causes = [
            (
                UnresolvedReason::NoNeighbour { ifindex, gateway },
                DropReason::NoNeighbour,
            ),
            (UnresolvedReason::NoRoute, DropReason::NoRoute),
            (UnresolvedReason::LinkDown { ifindex }, DropReason::NoRoute),
        ];
        for (subscriber, (cause, _)) in missing.subscribers.iter_mut().zip(&causes) {
            subscriber.next_hop = NextHop::Unresolved(*cause);
        }
        let mut running = rig.start(datapath, &plan(&missing));
        rig.send(&Frame::new(SENDER, INGEST, 100));
        assert_eq!(capture.take(1)[0].destination.port(), 7003);
        for (slot, (_, reason)) in (100..).zip(&causes) {
            assert_eq!(refused(&running, slot, *reason), 1, "{}", datapath.name());
        }
        rig.relay
            .run(|| running.reconfigure(&plan(&ready)).unwrap());
        rig.send(&Frame::new(SENDER, INGEST, 100));
        capture.take(4);
        let counters = running.stop();
        for one in stream(&counters).subscribers.values() {
            assert_eq!(one.delivered.packets + one.drops.total(), 2);
        }
    }
    assert_eq!(capture.rest(), []);
}

#[test]
fn a_device_too_small_for_a_datagram_is_counted() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    let small = LinkSpec::unnamed().mtu(1000);
    rig.relay.netlink().set_link(rig.out[0], &small).unwrap();
    for datapath in DATAPATHS {
        let mut relayed = rig.stream(4, INGEST);
        for subscriber in &mut relayed.subscribers {
            if let NextHop::Ready { ifindex, mtu, .. } = &mut subscriber.next_hop
                && *ifindex == rig.out[0]
            {
                *mtu = 1000;
            }
        }
        let running = rig.start(datapath, &plan(&relayed));
        rig.send(&Frame::new(SENDER, INGEST, 1200));
        assert!(
            capture
                .take(2)
                .iter()
                .all(|one| one.destination.port() % 2 == 1)
        );
        for (slot, too_big) in [(100, 1), (101, 0), (102, 1), (103, 0)] {
            assert_eq!(refused(&running, slot, DropReason::TooBig), too_big);
            assert_eq!(subscriber(&running, slot).delivered.packets, 1 - too_big);
        }
        drop(running);
    }
    assert_eq!(capture.rest(), []);
}

#[test]
fn datagrams_as_long_as_the_mtu_are_broadcast() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for datapath in DATAPATHS {
        let relayed = rig.stream(4, INGEST);
        let receivers = receivers(&rig, &relayed);
        let running = rig.start(datapath, &plan(&relayed));
        for _ in 0..20 {
            rig.send(&Frame::new(SENDER, INGEST, 1472));
            assert_eq!(
                received_lengths(&receivers),
                [1472; 4],
                "{}",
                datapath.name()
            );
        }
        let counters = running.stop();
        for one in stream(&counters).subscribers.values() {
            assert_eq!((one.delivered.packets, one.drops.total()), (20, 0));
        }
    }
}

#[test]
fn a_superframe_is_as_many_datagrams_as_it_holds() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for (datapath, sender, ingest) in everywhere() {
        let relayed = rig.stream(3, ingest);
        let receivers = receivers(&rig, &relayed);
        let running = rig.start(datapath, &plan(&relayed));
        let socket = rig.sender.run(|| UdpSocket::bind(sender).unwrap());
        setsockopt(&socket, sockopt::UdpGsoSegment, &500).unwrap();
        let payload: Vec<u8> = (0..2200_u32).map(|i| (i % 251) as u8).collect();
        socket.send_to(&payload, ingest).unwrap();
        for receiver in &receivers {
            for part in payload.chunks(500) {
                let mut buffer = [0; 4096];
                let length = receiver.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], part, "{}", datapath.name());
            }
        }
        let counters = running.stop();
        let counters = stream(&counters);
        assert_identities(counters);
        let counted = |traffic: relay::counters::Traffic| (traffic.packets, traffic.bytes);
        assert_eq!(counted(counters.received), (5, 2200), "{}", datapath.name());
        for one in counters.subscribers.values() {
            assert_eq!(counted(one.delivered), (5, 2200), "{}", datapath.name());
        }
    }
}

#[test]
fn two_queues_on_two_cpus_do_not_mix_their_copies() {
    const ROUNDS: u32 = 40;
    const BURST: u32 = 4;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    let cpus = sys::sched::allowed_cpus().unwrap();
    for datapath in DATAPATHS {
        for subscribers in [17, 33] {
            let running = rig.start(datapath, &plan(&rig.stream(subscribers, INGEST)));
            let mut seen = BTreeSet::new();
            for round in 0..ROUNDS {
                std::thread::scope(|scope| {
                    for (port, cpu) in [(4001_u16, cpus[0]), (4002, cpus[cpus.len() - 1])] {
                        let rig = &rig;
                        scope.spawn(move || {
                            rig.sender.run(|| {
                                sys::sched::pin(cpu).unwrap();
                                let socket = UdpSocket::bind(("10.1.0.1", port)).unwrap();
                                for number in round * BURST..(round + 1) * BURST {
                                    let mut payload = [0; 64];
                                    payload[..2].copy_from_slice(&port.to_be_bytes());
                                    payload[2..6].copy_from_slice(&number.to_be_bytes());
                                    socket.send_to(&payload, INGEST).unwrap();
                                }
                            });
                        });
                    }
                });
                for one in capture.take((2 * BURST * subscribers) as usize) {
                    let fresh = seen.insert((one.destination.port(), one.payload[..6].to_vec()));
                    assert!(fresh, "{} had one twice", one.destination);
                }
            }
            assert_eq!(seen.len() as u32, 2 * ROUNDS * BURST * subscribers);
            let counters = running.stop();
            for one in stream(&counters).subscribers.values() {
                let wanted = u64::from(2 * ROUNDS * BURST);
                assert_eq!((one.delivered.packets, one.drops.total()), (wanted, 0));
            }
        }
    }
    assert_eq!(capture.rest(), []);
}
