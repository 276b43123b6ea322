//! The xdp datapath's program and tables on real frames.

#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use netdev::{NextHop, UnresolvedReason};
use relay::xdp::Xdp;

use crate::common::frame::Frame;
use crate::common::plan_rig::{INGEST, REDIRECT, Rig, SENDER, assert_identities, plan, stream};

#[test]
fn every_subscriber_gets_its_own_copy_of_every_datagram() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for subscribers in [1, 2, 4, 17, 33, 256] {
        let plan = plan(&rig.stream(subscribers, INGEST));
        let running = rig.start(&Xdp, &plan);
        let program = rig.xdp_program();
        let frame = Frame::new(SENDER, INGEST, 200);
        assert_eq!(rig.verdict(&program, &frame.bytes(), 1), REDIRECT);
        for _ in 0..3 {
            rig.send(&frame);
            for (i, arrived) in (0..).zip(capture.take_by_port(subscribers as usize)) {
                assert_eq!(arrived, rig.copy(i, true, &frame), "of {subscribers}");
            }
        }
        assert_eq!(capture.rest(), []);
        let counters = running.stop();
        let counters = stream(&counters);
        assert_identities(counters);
        assert_eq!(counters.received.packets, 4);
        assert_eq!(counters.received.bytes, 800);
        for subscriber in counters.subscribers.values() {
            assert_eq!(subscriber.delivered.packets, 3, "one was a trial run");
        }
    }
}

#[test]
fn a_copy_that_finds_no_room_is_counted() {
    const DATAGRAMS: u32 = 200_000;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let mut relayed = rig.stream(2, INGEST);
    let mut local = rig.subscriber(9, true);
    local.next_hop = NextHop::Unresolved(UnresolvedReason::Local);
    relayed.subscribers.push(local);
    let running = rig.start(&Xdp, &plan(&relayed));
    let frame = Frame::new(SENDER, INGEST, 40).bytes();
    // Nobody reads the ring.
    assert_eq!(rig.verdict(&rig.xdp_program(), &frame, DATAGRAMS), REDIRECT);
    let counters = running.stop();
    let counters = stream(&counters);
    assert_eq!(counters.forwarded.packets, u64::from(DATAGRAMS));
    assert!(counters.copies_lost > 0, "{counters:?}");
    assert!(counters.copies_lost < counters.forwarded.packets);
}
