//! What a fast path has no room for, or cannot do, userspace does; and a place that is left is free again.

use std::time::{Duration, Instant};

use relay::core::Core;
use relay::spec::Source;
use sys::ethtool::Ethtool;

use crate::common::relay_rig::{Rig, await_counts, datagram, stream, subscriber};
use crate::common::space::TIMEOUT;

const DATAPATHS: [&str; 4] = ["recv", "xdp", "tc", "af-xdp"];
const SENDER: &str = "10.91.0.1:4000";
const INGEST: &str = "10.91.0.2:5004";
const RECEIVER: &str = "10.91.1.2:6000";

fn send(rig: &Rig) {
    rig.inject(&datagram(SENDER, INGEST, vec![7; 100]).frame());
}

#[test]
fn a_stream_has_any_number_of_source_prefixes() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for (sources, passes) in [("10.91.0.0/24", 1), ("10.92.0.0/24", 0)] {
            let rig = Rig::new(None);
            let mut prefixes: Vec<_> = (0..40)
                .map(|i| format!("192.0.2.{i}/32").parse().unwrap())
                .collect();
            prefixes.push(sources.parse().unwrap());
            let mut stream = stream(datapath, INGEST, vec![subscriber("a", RECEIVER)]);
            stream.source = Source::Prefixes(prefixes);
            let core = rig.serve(vec![stream]);
            send(&rig);
            let view = await_counts(&core, |view| view.received.packets == 1);
            assert_eq!(view.forwarded.packets, passes, "{datapath} {sources}");
            let explanation = core.explain(None).unwrap().remove(0);
            assert_eq!(explanation.served, 1, "{datapath}: {explanation}");
        }
    }
}

/// A device whose frames reach nobody; 10.93.NUMBER.2 is behind it.
fn add_device(rig: &Rig, number: u32) {
    rig.ip(&format!("link add d{number} type veth peer name e{number}"));
    rig.ip(&format!("address add 10.93.{number}.1/24 dev d{number}"));
    // XDP sends to a veth only where the other end takes frames in by NAPI.
    let gro = || {
        let device = Ethtool::open(&format!("e{number}"))?;
        device.set_features(&[("rx-gro", true)])
    };
    rig.relay.run(gro).unwrap();
    rig.ip(&format!("link set e{number} up"));
    rig.ip(&format!("link set d{number} up"));
    rig.ip(&format!(
        "neighbour add 10.93.{number}.2 lladdr 02:00:00:00:00:09 nud permanent dev d{number}"
    ));
}

fn all_delivered(core: &Core, packets: u64) -> bool {
    let view = core.counters().remove(0);
    let mut subscribers = view.subscribers.iter();
    subscribers.all(|subscriber| subscriber.delivered.packets == packets)
}

fn await_all(core: &Core, packets: u64) {
    let deadline = Instant::now() + TIMEOUT;
    while !all_delivered(core, packets) {
        assert!(Instant::now() < deadline, "{:?}", core.counters());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stream_leaves_by_more_devices_than_a_fast_path_sends_by() {
    const DEVICES: u32 = 36;
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        (0..DEVICES).for_each(|number| add_device(&rig, number));
        let subscribers = (0..DEVICES)
            .map(|number| subscriber(&format!("d{number}"), &format!("10.93.{number}.2:6000")));
        let core = rig.serve(vec![stream(datapath, INGEST, subscribers.collect())]);
        send(&rig);
        await_all(&core, 1);
        // One that goes is heard no more, however many are left.
        let remove = || core.remove_subscriber("s", "d0").unwrap();
        rig.relay.run(remove);
        send(&rig);
        await_all(&core, 2);
    }
}

#[test]
fn devices_that_are_gone_leave_their_places() {
    const DEVICES: u32 = 270;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new(None);
    let core = rig.serve(vec![stream("xdp", INGEST, vec![])]);
    for number in 0..DEVICES {
        add_device(&rig, 0);
        let name = format!("n{number}");
        let add = || {
            core.add_subscriber("s", subscriber(&name, "10.93.0.2:6000"))
                .unwrap();
        };
        rig.relay.run(add);
        if number + 1 == DEVICES {
            send(&rig);
            await_all(&core, 1);
            let explanation = core.explain(None).unwrap().remove(0);
            assert_eq!(explanation.served, 1, "{explanation}");
        }
        rig.relay
            .run(|| core.remove_subscriber("s", &name).unwrap());
        rig.ip("link delete d0");
    }
}

/// A container restarts: its device goes, and another one with the same address comes.
fn restart_container(rig: &Rig, core: &Core) {
    rig.ip("link delete d0");
    add_device(rig, 0);
    let before = delivered(core);
    let deadline = Instant::now() + TIMEOUT;
    while delivered(core) == before {
        assert!(Instant::now() < deadline, "{:?}", core.explain(None));
        send(rig);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn delivered(core: &Core) -> u64 {
    core.counters()[0].subscribers[0].delivered.packets
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// In KiB.
fn resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let mut words = line.unwrap().split_whitespace();
    words.next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a thousand restarts on each datapath"]
fn restarts_of_a_container_leave_nothing_behind() {
    // The first ones reach what stays in use: tables, allocators' caches, sockets.
    const FIRST: u32 = 100;
    const RESTARTS: u32 = 1000;
    const MARGIN_KIB: u64 = 8 << 10;
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        add_device(&rig, 0);
        let container = subscriber("container", "10.93.0.2:6000");
        let core = rig.serve(vec![stream(datapath, INGEST, vec![container])]);
        (0..FIRST).for_each(|_| restart_container(&rig, &core));
        let (descriptors, memory) = (open_descriptors(), resident_memory());
        (0..RESTARTS).for_each(|_| restart_container(&rig, &core));
        assert_eq!(open_descriptors(), descriptors, "{datapath}");
        let grown = resident_memory().saturating_sub(memory);
        assert!(grown < MARGIN_KIB, "{datapath}: {grown} KiB more");
        let explanation = core.explain(None).unwrap().remove(0);
        assert_eq!(explanation.served, 1, "{explanation}");
    }
}

#[test]
fn a_copy_leaves_by_the_route_of_its_source() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        rig.ip("route add 10.99.0.5/32 via 10.91.1.2");
        rig.ip("route add 10.99.0.5/32 via 10.91.2.2 table 100");
        rig.ip("rule add from 10.91.0.2 lookup 100");
        let subscribers = vec![subscriber("a", "10.99.0.5:6000")];
        let core = rig.serve(vec![stream(datapath, INGEST, subscribers)]);
        let capture = rig.capture();
        send(&rig);
        let copies = capture.take(1);
        assert_eq!(copies.len(), 1, "{datapath}");
        assert_eq!(copies[0].device, 2, "{datapath}");
        drop(core);
    }
}

#[test]
fn streams_send_from_one_address() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let from = |name: &str, listen: &str, to: &str| {
            let mut receiver = subscriber("a", to);
            receiver.from = Some("10.91.1.1:7000".parse().unwrap());
            let mut stream = stream(datapath, listen, vec![receiver]);
            stream.name = name.to_owned();
            stream
        };
        let core = rig.serve(vec![
            from("a", INGEST, RECEIVER),
            from("b", "10.91.0.2:5006", "10.91.1.2:6001"),
        ]);
        let capture = rig.capture();
        for to in [INGEST, "10.91.0.2:5006"] {
            rig.inject(&datagram(SENDER, to, vec![7; 100]).frame());
        }
        let copies = capture.take(2);
        let sources: Vec<_> = copies.iter().map(|copy| copy.source.to_string()).collect();
        assert_eq!(sources, ["10.91.1.1:7000"; 2], "{datapath}");
        drop(core);
    }
}
