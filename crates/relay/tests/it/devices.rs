//! What befalls the relay's devices and routes, as its user sees it: named, counted, and over when
//! its cause is.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use relay::core::{Core, Explanation, StreamView};
use relay::counters::DropReason;
use sys::ethtool::Ethtool;

use crate::common::relay_rig::{Capture, Rig, await_counts, datagram, stream, subscriber};
use crate::common::space::TIMEOUT;

const DATAPATHS: [&str; 4] = ["mmsg", "tc", "xdp", "af-xdp"];
const FAST: [&str; 3] = ["tc", "xdp", "af-xdp"];
const SENDER: &str = "10.91.0.1:4000";
const INGEST: &str = "10.91.0.2:5004";
const FIRST: &str = "10.91.1.2:6000";
const SECOND: &str = "10.91.2.2:6001";

fn send(rig: &Rig, size: usize) {
    rig.inject(&datagram(SENDER, INGEST, vec![7; size]).frame());
}

/// Waits until the explanation of the only stream is so.
fn await_explanation(core: &Core, is_so: impl Fn(&Explanation) -> bool) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let explanation = core.explain(None).unwrap().remove(0);
        if is_so(&explanation) {
            return explanation.to_string();
        }
        assert!(Instant::now() < deadline, "still {explanation}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn dropped(explanation: &Explanation, reason: DropReason) -> bool {
    explanation
        .slow
        .iter()
        .any(|slow| slow.drops.0.get(&reason) == Some(&1))
}

#[test]
fn a_neighbour_that_does_not_answer_is_explained() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let silent = vec![subscriber("silent", "10.91.1.77:6000")];
        let core = rig.serve(vec![stream(datapath, INGEST, silent)]);
        send(&rig, 100);
        // Names of devices are those of the namespace.
        let explain = || await_explanation(&core, |it| dropped(it, DropReason::NoNeighbour));
        let said = rig.relay.run(explain);
        let reason = "no neighbour entry for 10.91.1.77 on out1; resolving it for";
        assert!(said.contains(reason), "{datapath}: {said}");
        assert!(
            said.contains("(drops.no_neighbour 1)"),
            "{datapath}: {said}"
        );
    }
}

#[test]
fn a_datagram_that_exceeds_the_mtu_is_explained() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(Some(1300));
        let capture = rig.capture();
        let core = rig.serve(vec![stream(datapath, INGEST, vec![subscriber("s", FIRST)])]);
        send(&rig, 1400);
        let said = await_explanation(&core, |it| dropped(it, DropReason::TooBig));
        let reason = "packets exceed the path MTU 1300   (drops.too_big 1)";
        assert!(said.contains(reason), "{datapath}: {said}");
        send(&rig, 1200);
        assert_eq!(capture.take(1)[0].payload.len(), 1200, "{datapath}");
    }
}

#[test]
fn a_receiver_without_napi_is_explained_and_taken_in_again() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new(None);
    let gro = |on| {
        let set = || Ethtool::open("c1")?.set_features(&[("rx-gro", on)]);
        rig.receivers.run(set).unwrap();
    };
    gro(false);
    let core = rig.serve(vec![stream("xdp", INGEST, vec![subscriber("s", FIRST)])]);
    let said = await_explanation(&core, |it| it.served == 0);
    for part in [
        "out1",
        "gro on",
        "0 of 1 subscribers",
        "userspace sends to it",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let capture = rig.capture();
    send(&rig, 100);
    assert_eq!(capture.take(1).len(), 1);
    gro(true);
    await_explanation(&core, |it| it.served == 1);
    send(&rig, 100);
    assert_eq!(capture.take(1).len(), 1);
    gro(false);
    await_explanation(&core, |it| it.served == 0);
    // Userspace learns of it at its next look.
    let deadline = Instant::now() + TIMEOUT;
    while capture.rest().is_empty() {
        assert!(Instant::now() < deadline, "userspace does not send");
        send(&rig, 100);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_machine_that_does_not_forward_relays() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        rig.relay.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "0").unwrap();
        });
        let subscribers = [
            FIRST,
            SECOND,
            "[fd91:0:0:1::2]:6002",
            "[fd91:0:0:2::2]:6003",
        ];
        let subscribers = subscribers.map(|to| subscriber(to, to)).to_vec();
        let core = rig.serve(vec![stream(datapath, INGEST, subscribers)]);
        let capture = rig.capture();
        send(&rig, 100);
        assert_eq!(capture.take(4).len(), 4, "{datapath}");
        let view = await_counts(&core, |view| view.forwarded.packets == 1);
        for subscriber in view.subscribers {
            assert_eq!(
                subscriber.delivered.packets, 1,
                "{datapath}: {}",
                subscriber.to
            );
        }
    }
}

/// Sends until as many copies of a datagram arrive as expected, and returns how many it sent.
fn await_copies(rig: &Rig, capture: &Capture, expected: usize, what: &str) -> u64 {
    let deadline = Instant::now() + TIMEOUT;
    let mut sent = 0;
    let mut heard = capture.rest().len();
    while heard < expected {
        assert!(Instant::now() < deadline, "{what}: {heard} of {expected}");
        send(rig, 100);
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
        let copies = capture.rest();
        let devices = [1, 2].map(|device| copies.iter().any(|copy| copy.device == device));
        heard = devices.into_iter().filter(|heard| *heard).count();
    }
    sent
}

/// What was dropped for the first subscriber because no route led to it.
fn unroutable(view: &StreamView) -> u64 {
    let drops = &view.subscribers[0].drops.0;
    drops.get(&DropReason::NoRoute).copied().unwrap_or(0)
}

#[test]
fn an_egress_device_may_go_and_come_back() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let subscribers = vec![subscriber("first", FIRST), subscriber("second", SECOND)];
        let core = rig.serve(vec![stream(datapath, INGEST, subscribers)]);
        let sent = await_copies(&rig, &rig.capture(), 2, datapath);
        rig.cut("out1");
        // The device goes first, then its route.
        let is_gone =
            |reason: &str| reason.contains("is down or gone") || reason.contains("no route");
        await_explanation(&core, |it| it.slow.iter().any(|slow| is_gone(&slow.reason)));
        let before = await_counts(&core, |view| {
            let done = view.forwarded.packets + view.drops.total();
            (view.received.packets, done) == (sent, sent)
        });
        let second = rig.receivers.run(|| UdpSocket::bind(SECOND).unwrap());
        second.set_read_timeout(Some(TIMEOUT)).unwrap();
        send(&rig, 300);
        while second.recv(&mut [0; 512]).unwrap() != 300 {}
        let forwarded = before.forwarded.packets + 1;
        let view = await_counts(&core, |view| view.forwarded.packets == forwarded);
        assert_eq!(unroutable(&view), unroutable(&before) + 1, "{datapath}");
        rig.restore_egress(1);
        await_explanation(&core, |it| {
            it.slow.iter().all(|slow| !is_gone(&slow.reason))
        });
        await_copies(&rig, &rig.capture(), 2, datapath);
    }
}

#[test]
fn the_ingest_device_may_go_and_come_back() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for named in [false, true] {
            let mut rig = Rig::new(None);
            let subscribers = vec![subscriber("first", FIRST), subscriber("second", SECOND)];
            let mut spec = stream(datapath, INGEST, subscribers);
            if named {
                spec.interfaces = vec!["in0".into()];
            }
            let core = rig.serve(vec![spec]);
            await_copies(&rig, &rig.capture(), 2, datapath);
            let before = core.counters().remove(0).forwarded.packets;
            rig.cut("in0");
            let reason = if named {
                "no interface \"in0\""
            } else {
                "10.91.0.2 is no longer an address"
            };
            // Amid the cut the device may still be seen, and already without its address.
            await_explanation(&core, |it| {
                it.absent.is_some() && it.to_string().contains(reason)
            });
            rig.restore_ingress();
            await_explanation(&core, |it| it.absent.is_none());
            await_copies(&rig, &rig.capture(), 2, datapath);
            let after = core.counters().remove(0).forwarded.packets;
            assert!(after > before, "{datapath}: {after} after {before}");
        }
    }
}

#[test]
fn a_stream_runs_on_while_another_streams_device_is_gone() {
    const OTHER: &str = "10.91.2.1:5006";
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(None);
        let mut gone = stream(datapath, OTHER, vec![subscriber("s", "10.91.0.1:7000")]);
        (gone.name, gone.interfaces) = ("gone".into(), vec!["out2".into()]);
        let core = rig.serve(vec![
            stream(datapath, INGEST, vec![subscriber("s", FIRST)]),
            gone,
        ]);
        await_copies(&rig, &rig.capture(), 1, datapath);
        let capture = rig.capture();
        rig.cut("out2");
        let deadline = Instant::now() + TIMEOUT;
        while core.explain(Some("gone")).unwrap()[0].absent.is_none() {
            assert!(Instant::now() < deadline, "{datapath}: nobody says it");
            std::thread::sleep(Duration::from_millis(5));
        }
        await_copies(&rig, &capture, 1, datapath);
        // In the kernel as before: the slow path would not tell a liar.
        let mut liar = datagram(SENDER, INGEST, *b"lie").frame();
        liar[39] += 1;
        while core.explain(Some("s")).unwrap()[0].drops.total() == 0 {
            assert!(
                Instant::now() < deadline,
                "{datapath}: not on the fast path"
            );
            rig.inject(&liar);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn other_streams_lose_and_reorder_nothing_while_a_device_goes_and_comes_back() {
    const OTHER: &str = "10.91.2.1:5006";
    const DATAGRAMS: u32 = 1500;
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(None);
        let mut gone = stream(datapath, OTHER, vec![subscriber("s", "10.91.0.1:7000")]);
        (gone.name, gone.interfaces) = ("gone".into(), vec!["out2".into()]);
        let core = rig.serve(vec![
            stream(datapath, INGEST, vec![subscriber("s", FIRST)]),
            gone,
        ]);
        let capture = rig.capture();
        await_copies(&rig, &capture, 1, datapath);
        capture.rest();
        let frames = (0..DATAGRAMS).map(|number| {
            std::thread::sleep(Duration::from_millis(1));
            datagram(SENDER, INGEST, number.to_be_bytes()).frame()
        });
        let is_absent = || core.explain(Some("gone")).unwrap()[0].absent.is_some();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| rig.inject_in_order(frames));
            while !sender.is_finished() {
                rig.cut("out2");
                while !is_absent() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                rig.restore_egress(2);
                while is_absent() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let arrived = capture.take(DATAGRAMS as usize);
        let arrived: Vec<Vec<u8>> = arrived.into_iter().map(|copy| copy.payload).collect();
        let sent: Vec<Vec<u8>> = (0..DATAGRAMS).map(|n| n.to_be_bytes().to_vec()).collect();
        assert!(
            arrived == sent,
            "{datapath}: {} of {DATAGRAMS}",
            arrived.len()
        );
    }
}
