//! The af-xdp datapath where its rings and devices are the limit.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use std::net::UdpSocket;

use netdev::{LinkSpec, NextHop};
use relay::af_xdp::AfXdp;
use relay::counters::{DropReason, StreamCounters};

use crate::common::frame::Frame;
use crate::common::plan_rig::{INGEST, Rig, SENDER, assert_identities, dropped, mac, plan, stream};
use crate::common::space::recv_datagram;

/// Every copy of every datagram that was forwarded is counted.
fn assert_complete(counters: &StreamCounters) {
    assert_identities(counters);
    for subscriber in counters.subscribers.values() {
        let copies = subscriber.delivered.packets + subscriber.drops.total();
        assert_eq!(copies, counters.forwarded.packets, "{counters:?}");
    }
}

#[test]
fn every_subscriber_gets_its_copy_and_an_overload_is_counted() {
    const BURST: u64 = 6000;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for subscribers in [1, 64, 256] {
        let running = rig.start(&AfXdp, &plan(&rig.stream(subscribers, INGEST)));
        let capture = rig.capture();
        rig.send(&Frame::new(SENDER, INGEST, 200));
        let mut ports: Vec<u16> = capture
            .take(subscribers as usize)
            .iter()
            .map(|arrived| arrived.destination.port())
            .collect();
        ports.sort_unstable();
        let expected: Vec<u16> = (7000..7000 + subscribers as u16).collect();
        assert_eq!(ports, expected);
        drop(capture);
        if subscribers == 64 {
            let socket = rig.sender.run(|| UdpSocket::bind(SENDER).unwrap());
            for _ in 0..BURST {
                socket.send_to(&[1; 64], INGEST).unwrap();
            }
        }
        let counters = running.stop();
        let counters = stream(&counters);
        assert_complete(counters);
        let overload = subscribers == 64;
        let lost = dropped(counters, DropReason::QueueFull);
        assert_eq!(lost > 0, overload, "{counters:?}");
        // The network stack's own backlog may have been full before the program saw them.
        assert!(counters.received.packets <= if overload { BURST + 1 } else { 1 });
    }
}

#[test]
fn copies_leave_by_the_device_their_datagram_came_in_by() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let receiver = rig.sender.listen("10.1.0.1:7000");
    let mut relayed = rig.stream(1, INGEST);
    let subscriber = &mut relayed.subscribers[0];
    subscriber.source = INGEST.parse().unwrap();
    subscriber.destination = "10.1.0.1:7000".parse().unwrap();
    subscriber.next_hop = NextHop::Ready {
        ifindex: rig.ingress,
        source_mac: mac(2),
        destination_mac: mac(3),
        mtu: 1500,
        source: subscriber.source.ip(),
    };
    let running = rig.start(&AfXdp, &plan(&relayed));
    for size in [5, 1400] {
        rig.send(&Frame::new(SENDER, INGEST, size));
        assert_eq!(recv_datagram(&receiver), (size, INGEST.into()));
    }
    assert_complete(stream(&running.stop()));
}

#[test]
fn a_device_that_is_down_takes_nothing_until_it_is_up() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    let running = rig.start(&AfXdp, &plan(&rig.stream(2, INGEST)));
    let set = |spec: LinkSpec<'_>| rig.relay.netlink().set_link(rig.out[0], &spec).unwrap();
    let ports = |count| -> Vec<u16> {
        let arrived = capture.take(count);
        let ports = arrived.iter().map(|arrived| arrived.destination.port());
        ports.collect()
    };
    set(LinkSpec::unnamed().down());
    for size in [20, 21] {
        rig.send(&Frame::new(SENDER, INGEST, size));
        assert_eq!(ports(1), [7001]);
    }
    set(LinkSpec::unnamed().up());
    rig.send(&Frame::new(SENDER, INGEST, 22));
    // The first was handed over before the device said that it is down: it leaves late.
    let mut arrived = ports(3);
    arrived.sort_unstable();
    assert_eq!(arrived, [7000, 7000, 7001]);
    let counters = running.stop();
    let counters = stream(&counters);
    assert_complete(counters);
    let drops = &counters.subscribers[&100].drops.0;
    assert_eq!(drops.get(&DropReason::Transmit), Some(&1), "{counters:?}");
}
