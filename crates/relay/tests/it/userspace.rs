//! Each userspace datapath on real packets: what leaves, field by field, and what is counted.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use relay::counters::DropReason;
use relay::spec::{Source, SubscriberSpec};
use units::Pps;

use crate::common::relay_rig::{
    Capture, ReceivedDatagram, Rig, await_counts, datagram, stream, subscriber,
};
use crate::common::space::{TIMEOUT, recv_datagram};

const DATAPATHS: [&str; 4] = ["recv", "mmsg", "gso", "busy"];
const SENDER: &str = "10.91.0.1:4000";
const INGEST: &str = "10.91.0.2:5004";
const SENDER6: &str = "[fd91::1]:4000";
const INGEST6: &str = "[fd91::2]:5004";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Subscribers in turn on both devices, each with a port of its own.
fn fan(count: usize, v6: bool) -> Vec<SubscriberSpec> {
    (0..count)
        .map(|at| {
            let (device, port) = (1 + at % 2, 6000 + at);
            let to = if v6 {
                format!("[fd91:0:0:{device}::2]:{port}")
            } else {
                format!("10.91.{device}.2:{port}")
            };
            subscriber(&format!("s{at}"), &to)
        })
        .collect()
}

/// Every subscriber gets every datagram, in order, with the fields that the plan promises.
fn fans_out(datapath: &str, from: &str, to: &str, subscribers: &[SubscriberSpec]) {
    let rig = Rig::new(None);
    let core = rig.serve(vec![stream(datapath, to, subscribers.to_vec())]);
    let capture = rig.capture();
    let sizes = [0, 1, 31, 200, 200, 200, 200, 1200, 1432];
    let frame = |(at, size): (u8, usize)| {
        let payload = vec![at; size];
        datagram(from, to, payload).ttl(17).tos(0xb9).frame()
    };
    rig.inject_in_order((0_u8..).zip(sizes).map(frame));
    let copies = capture.take(sizes.len() * subscribers.len());
    for spec in subscribers {
        let got: Vec<_> = copies
            .iter()
            .filter(|copy| copy.destination == spec.to)
            .collect();
        assert_eq!(got.len(), sizes.len(), "{datapath}: {}", spec.name);
        for (at, (copy, size)) in got.into_iter().zip(sizes).enumerate() {
            assert_eq!(
                copy.payload,
                vec![u8::try_from(at).unwrap(); size],
                "{datapath}"
            );
            assert_eq!(
                (copy.ttl, copy.tos, copy.whole),
                (16, 0xb9, true),
                "{datapath}"
            );
            assert_eq!(copy.source.port(), 5004);
            if spec.to.is_ipv4() == address(to).is_ipv4() {
                assert_eq!(copy.source, address(to));
            }
        }
    }
    assert_eq!(capture.rest(), []);
    let view = core.stop().remove(0);
    let packets = u64::try_from(sizes.len()).unwrap();
    assert_eq!(
        (view.received.packets, view.forwarded.packets),
        (packets, packets)
    );
    for counts in &view.subscribers {
        assert_eq!(counts.delivered.packets, packets);
    }
}

#[test]
fn every_subscriber_gets_every_datagram() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for count in [1, 4, 17, 33, 256] {
            fans_out(datapath, SENDER, INGEST, &fan(count, false));
        }
    }
}

#[test]
fn families_mix() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        fans_out(datapath, SENDER6, INGEST6, &fan(4, true));
        fans_out(datapath, SENDER, INGEST, &fan(4, true));
        fans_out(datapath, SENDER6, INGEST6, &fan(4, false));
    }
}

#[test]
fn refusals_have_names_and_sums() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(Some(1300));
        let mut spec = stream(datapath, INGEST, fan(2, false));
        spec.source = Source::Prefixes(vec!["10.91.0.0/30".parse().unwrap()]);
        spec.rate.stream = Some(Pps(100));
        let core = rig.serve(vec![spec]);
        let capture = rig.capture();
        rig.inject(&datagram("10.91.0.77:4000", INGEST, *b"denied").frame());
        rig.inject(&datagram(SENDER, INGEST, *b"old").ttl(1).frame());
        rig.inject(&datagram(SENDER, INGEST, vec![1; 1350]).frame());
        rig.inject(&datagram(SENDER, INGEST, *b"fine").frame());
        let view = await_counts(&core, |view| view.received.packets == 4);
        let refused = |reason| view.drops.0.get(&reason).copied().unwrap_or(0);
        assert_eq!(refused(DropReason::SourceDenied), 1, "{datapath}");
        assert_eq!(refused(DropReason::TtlExceeded), 1, "{datapath}");
        assert_eq!(view.forwarded.packets, 2, "{datapath}");
        // The first device's MTU is 1300: the large one goes to the second subscriber only.
        assert_eq!(
            view.subscribers[0].drops.0.get(&DropReason::TooBig),
            Some(&1)
        );
        assert_eq!(capture.take(3).len(), 3, "{datapath}");
        assert_eq!(capture.rest(), []);
        for at in 0..50_u8 {
            rig.inject(&datagram(SENDER, INGEST, [at]).frame());
        }
        let view = await_counts(&core, |view| view.received.packets == 54);
        let limited = view
            .drops
            .0
            .get(&DropReason::RateLimited)
            .copied()
            .unwrap_or(0);
        assert!(limited > 0, "{datapath}: 50 at once exceed a burst of 10");
        assert_eq!(
            view.received.packets,
            view.forwarded.packets + view.drops.total()
        );
    }
}

#[test]
fn a_wrong_checksum_is_counted_where_it_belongs() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let core = rig.serve(vec![stream(datapath, INGEST, fan(1, false))]);
        let capture = rig.capture();
        let wrong = datagram(SENDER, INGEST, *b"wrong").checksum(packet::build::Checksum::Bad);
        rig.inject(&wrong.frame());
        rig.inject(&datagram(SENDER, INGEST, *b"right").frame());
        let view = await_counts(&core, |view| view.received.packets == 2);
        assert_eq!(
            view.drops.0.get(&DropReason::BadChecksum),
            Some(&1),
            "{datapath}"
        );
        assert_eq!(capture.take(1)[0].payload, b"right");
        assert_eq!(capture.rest(), []);
    }
}

#[test]
fn members_come_and_go_without_foreign_or_missing_packets() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let core = rig.serve(vec![stream(datapath, INGEST, fan(2, false))]);
        let capture = rig.capture();
        let mut sent = 0_u16;
        for round in 0..20 {
            let guest = subscriber("guest", &format!("10.91.1.2:{}", 7000 + round));
            core.add_subscriber("s", guest.clone()).unwrap();
            let frame = |number: u16| datagram(SENDER, INGEST, number.to_be_bytes()).frame();
            rig.inject_in_order((sent..sent + 10).map(frame));
            sent += 10;
            await_counts(&core, |view| view.received.packets == u64::from(sent));
            core.remove_subscriber("s", "guest").unwrap();
        }
        let copies = capture.take(usize::from(sent) * 3);
        assert_eq!(capture.rest(), []);
        for (at, expected) in [(6000, 0..200_u16), (6001, 0..200), (7003, 30..40)] {
            let got = copies.iter().filter(|copy| copy.destination.port() == at);
            let numbers: Vec<_> = got.map(|copy| copy.payload.clone()).collect();
            let expected: Vec<_> = expected.map(|n| n.to_be_bytes().to_vec()).collect();
            assert_eq!(numbers, expected, "{datapath}: port {at}");
        }
    }
}

#[test]
fn a_stream_moves_between_datapaths_under_load() {
    if sys::require::root() {
        moves_under_load("", &["mmsg", "gso", "busy", "recv"]);
    }
}

#[test]
fn a_stream_moves_to_fast_paths_and_back_under_load() {
    if sys::require::root() {
        let datapaths = [
            "xdp", "mmsg", "tc", "af-xdp", "recv", "af-xdp", "xdp", "af-xdp", "gso",
        ];
        moves_under_load("", &datapaths);
    }
}

/// What is diverted during a hand-over reaches userspace where only the stream's own port is open.
#[test]
fn a_stream_moves_behind_a_firewall_that_accepts_its_port_alone() {
    if sys::require::root() {
        let rules = "table inet f { chain input { type filter hook input priority 0; policy drop; \
                     udp dport 5004 accept; }; }";
        moves_under_load(rules, &["xdp", "tc", "recv", "af-xdp", "mmsg"]);
    }
}

/// A subscriber on the relay's own machine needs no port but its own, either.
#[test]
fn a_subscriber_of_this_machine_hears_behind_a_firewall() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new(None);
    rig.load_rules(
        "table inet f { chain input { type filter hook input priority 0; policy drop; \
         udp dport { 5004, 6100 } accept; }; }",
    );
    let local = rig.relay.run(|| UdpSocket::bind("10.91.1.1:6100").unwrap());
    local.set_read_timeout(Some(TIMEOUT)).unwrap();
    for datapath in ["recv", "tc", "xdp", "af-xdp"] {
        let subscribers = vec![
            subscriber("far", "10.91.1.2:6000"),
            subscriber("local", "10.91.1.1:6100"),
        ];
        let core = rig.serve(vec![stream(datapath, INGEST, subscribers)]);
        let capture = rig.capture();
        rig.inject(&datagram(SENDER, INGEST, vec![7; 100]).frame());
        assert_eq!(recv_datagram(&local).0, 100, "{datapath}");
        assert_eq!(capture.take(1).len(), 1, "{datapath}");
        core.remove_subscriber("s", "local").unwrap();
        rig.inject(&datagram(SENDER, INGEST, vec![7; 100]).frame());
        assert_eq!(capture.take(1).len(), 1, "{datapath}");
        let view = core.stop().remove(0);
        assert_eq!(view.copies_lost, 0, "{datapath}");
        assert_eq!(view.received.packets, 2, "{datapath}");
    }
}

/// Sends numbered datagrams to two subscribers until it is done, and returns how many, and the
/// copies that have arrived. Always from the same CPU: a veth queues the frames of each apart, and
/// a sender that moves overtakes itself.
fn send_numbers(rig: &Rig, capture: &Capture, done: &AtomicBool) -> (u32, Vec<ReceivedDatagram>) {
    // Datagrams on their way: every queue holds more, however long the relay is away.
    const MAX_IN_FLIGHT: usize = 100;
    sys::sched::pin(0).unwrap();
    let (mut sent, mut copies) = (0_u32, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(300);
    while !done.load(Ordering::Relaxed) && Instant::now() < deadline {
        copies.extend(capture.rest());
        if usize::try_from(sent).unwrap() < copies.len() / 2 + MAX_IN_FLIGHT {
            rig.inject(&datagram(SENDER, INGEST, sent.to_be_bytes()).frame());
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    (sent, copies)
}

/// Nothing is lost, doubled or overtaken while a stream goes from datapath to datapath.
fn moves_under_load(rules: &str, datapaths: &[&str]) {
    let rig = Rig::new(None);
    rig.load_rules(rules);
    let core = rig.serve(vec![stream("recv", INGEST, fan(2, false))]);
    let capture = rig.capture();
    let done = AtomicBool::new(false);
    let (total, mut copies) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_numbers(&rig, &capture, &done));
        for datapath in datapaths {
            let before = core.counters()[0].received.packets;
            let switched = || core.switch("s", datapath, Duration::from_secs(60));
            rig.relay.run(switched).unwrap();
            await_counts(&core, |view| view.received.packets > before + 50);
        }
        done.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    let expected = usize::try_from(total).unwrap() * 2;
    copies.extend(capture.take(expected.saturating_sub(copies.len())));
    for port in [6000, 6001] {
        let got = copies.iter().filter(|copy| copy.destination.port() == port);
        let numbers: Vec<_> = got.map(|copy| copy.payload.clone()).collect();
        let expected: Vec<_> = (0..total).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(numbers.len(), expected.len());
        let wrong = numbers
            .iter()
            .zip(&expected)
            .position(|(got, sent)| got != sent);
        assert_eq!(wrong, None, "in order");
    }
    let view = core.stop().remove(0);
    assert_eq!(view.received.packets, u64::from(total));
}

#[test]
fn errors_name_the_thing() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new(None);
    let core = rig.serve(vec![stream("recv", INGEST, fan(1, false))]);
    let taken = rig
        .try_serve(vec![stream("recv", INGEST, fan(1, false))])
        .unwrap_err();
    assert!(
        taken.message.contains("10.91.0.2:5004 is in use"),
        "{taken}"
    );
    let foreign = rig
        .try_serve(vec![stream("recv", "192.0.2.1:5004", vec![])])
        .unwrap_err();
    assert!(
        foreign.message.contains("not an address of this machine"),
        "{foreign}"
    );
    let unknown = core.remove_stream("nobody").unwrap_err();
    assert_eq!(unknown.message, "no stream \"nobody\"");
    let looping = core
        .add_subscriber("s", subscriber("loop", INGEST))
        .unwrap_err();
    assert!(looping.message.contains("own ingest (loop)"), "{looping}");
    let unknown = core.switch("s", "warp", Duration::ZERO).unwrap_err();
    assert!(
        unknown
            .message
            .contains("no datapath \"warp\"; there are recv"),
        "{unknown}"
    );
}
