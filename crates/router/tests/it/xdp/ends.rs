//! Ends that frames come to only where something goes wrong.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acl::{Action, Protocol, Rule, Rule4};
use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};
use libbpf_rs::{MapCore, MapHandle};
use lpm::Rib;
use netdev::Netlink;
use router::forward::{Family, Forwarding, Plane};
use router::rules::RuleSet;
use router::xdp::{End, Settings, Xdp};
use sys::huge::{Array, Region};

use super::frames::udp;
use super::rig::{DROP, PASS, Space, hop, run, test_runs};

/// On a busy machine, and where CPUs are emulated in turns, two threads seldom run at the same time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Runs of the program in a turn: a change has to come within each of its attempts, a hundred
/// nanoseconds each.
const RUNS: u16 = 1_000;
/// The program's attempts in a run.
const ATTEMPTS: u32 = 4;
/// Where a change came so often within each of as many attempts that last a few nanoseconds only, the
/// program must have met some.
const MIN_CHANGES: u32 = 20_000;
const PAGE: usize = 4096;

/// A plane that sends everything by one device.
fn plane(space: &Space) -> Xdp {
    let (mut v4, mut v6) = (Rib::new(), Rib::new());
    v4.insert("0.0.0.0/0".parse().unwrap(), hop(1));
    v6.insert("::/0".parse().unwrap(), hop(1));
    let mut xdp = space.start(&Settings::default(), v4, v6);
    let to = Forwarding::Neighbour(space.adjacency());
    for family in [Family::V4, Family::V6] {
        space.next_hop(&mut xdp, family, 1, &to);
    }
    xdp
}

#[test]
fn what_leaves_by_a_device_that_is_gone_is_dropped() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let xdp = plane(&space);
    let frames = [
        udp("198.51.100.1", "203.0.113.9"),
        udp("2001:db8:1::1", "2001:db8:2::9"),
    ]
    .map(|packet| packet.ttl(9).frame());
    for frame in &frames {
        assert_eq!(run(&space, &xdp, frame).end, End::Forwarded);
    }
    let delete = || Netlink::new().unwrap().delete_link(space.out).unwrap();
    space.run(delete);
    for frame in &frames {
        let outcome = run(&space, &xdp, frame);
        assert_eq!((outcome.end, outcome.verdict), (End::DroppedAtDevice, DROP));
    }
}

/// Rules about intervals of ports that lie in each other, narrow ones first: no cut tells them apart.
fn nested<A: acl::Address>(each: u16) -> Vec<Rule<A>> {
    let interval = |at: u16| 8 * at + 8..=u16::MAX - 8 * at - 8;
    let mut rules: Vec<Rule<A>> = (0..each)
        .flat_map(|source| (0..each).map(move |destination| (source, destination)))
        .map(|(source, destination)| Rule {
            source_ports: interval(source),
            destination_ports: interval(destination),
            protocol: Protocol::exactly(17),
            action: Action::Drop,
            ..Rule::default()
        })
        .collect();
    rules.sort_by_key(|rule| rule.source_ports.len() + rule.destination_ports.len());
    rules
}

#[test]
fn a_walk_that_is_too_long_leaves_the_packet_to_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let mut xdp = plane(&space);
    let rules = RuleSet {
        v4: nested::<u32>(600),
        ..RuleSet::default()
    };
    space.run(|| xdp.rules(&rules)).unwrap();
    let at = |text: &str| text.parse().unwrap();
    let frame = |source, destination| {
        let packet = packet::build::udp(at(source), at(destination));
        packet.macs(super::rig::SENDER, super::rig::OURS).frame()
    };
    // The first rule is about it.
    let inside = frame("198.51.100.1:32000", "203.0.113.9:32000");
    assert_eq!(run(&space, &xdp, &inside).end, End::DroppedByRule);
    // None is, and there are more than a walk looks at.
    let outside = frame("198.51.100.1:1", "203.0.113.9:1");
    let outcome = run(&space, &xdp, &outside);
    assert_eq!(
        (outcome.end, outcome.verdict, &outcome.frame),
        (End::RulesUnfinished, PASS, &outside)
    );
    let [hits, _] = xdp.hits();
    assert_eq!((hits.none, hits.rules.iter().sum::<u64>()), (0, 1));
    // A list that ends.
    let one = Rule4 {
        action: Action::Drop,
        ..Rule4::default()
    };
    let rules = RuleSet {
        v4: vec![one],
        ..RuleSet::default()
    };
    space.run(|| xdp.rules(&rules)).unwrap();
    assert_eq!(run(&space, &xdp, &outside).end, End::DroppedByRule);
}

/// The program's map of this name.
fn map(xdp: &Xdp, name: &str) -> MapHandle {
    let mut ids = [0_u32; 64];
    let mut info = bpf_prog_info {
        nr_map_ids: 64,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut length = size_of::<bpf_prog_info>() as u32;
    let program = xdp.program().as_fd().as_raw_fd();
    // SAFETY: the kernel writes no more than `length` bytes of `info`, and no more ids than it has room for.
    let result =
        unsafe { bpf_obj_get_info_by_fd(program, (&raw mut info).cast(), &raw mut length) };
    assert_eq!(result, 0);
    let maps = ids[..info.nr_map_ids as usize].iter();
    let mut maps = maps.map(|id| MapHandle::from_map_id(*id).unwrap());
    maps.find(|map| map.name() == name).unwrap()
}

#[test]
fn a_table_that_changes_all_the_time_leaves_the_packet_to_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    // Routes beside the address, so that each attempt searches them and takes long enough for a change to come.
    let mut v6 = Rib::new();
    for part in 0x100..0x180 {
        let beside = format!("2001:db8:2:0:{part:x}::/80");
        v6.insert(beside.parse().unwrap(), hop(1));
    }
    let xdp = space.start(&Settings::default(), Rib::new(), v6);
    let version = Region::shared(map(&xdp, "v6_version").as_fd(), PAGE).unwrap();
    let version: Array<AtomicU64> = Array::within(version, PAGE / 8).unwrap();
    let frame = udp("2001:db8:1::1", "2001:db8:2::9").ttl(9).frame();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                version[0].fetch_add(1, Ordering::SeqCst);
            }
        });
        let started = Instant::now();
        let changed = || {
            let before = version[0].load(Ordering::SeqCst);
            version[0].load(Ordering::SeqCst) != before
        };
        let mut met = 0;
        // In one thread: each has the CPU that its changes were met on.
        let busy = space.run(|| {
            loop {
                let busy = busy_of(RUNS, &xdp, &frame);
                // Two threads that take turns on one CPU change the table between runs, never in them.
                let runs = (0..RUNS).filter(|_| (0..ATTEMPTS).all(|_| changed()));
                met += u32::try_from(runs.count()).unwrap();
                if busy > 0 || met >= MIN_CHANGES || started.elapsed() > TIMEOUT {
                    break busy;
                }
            }
        });
        stop.store(true, Ordering::Relaxed);
        if busy == 0 && met < MIN_CHANGES {
            let seldom = "two threads seldom run at the same time";
            return sys::require::skip(sys::require::Class::Hardware, seldom);
        }
        assert!(busy > 0);
    });
    assert_eq!(run(&space, &xdp, &frame).end, End::NoRoute);
}

/// How many of some runs on a frame without a route were left to the kernel.
fn busy_of(runs: u16, xdp: &Xdp, frame: &[u8]) -> u64 {
    let count = |end| xdp.counters().unwrap().get(end).packets;
    let (busy, none) = (count(End::Busy), count(End::NoRoute));
    assert_eq!(test_runs(xdp, frame, runs), PASS);
    let busy = count(End::Busy) - busy;
    assert_eq!(busy + count(End::NoRoute) - none, u64::from(runs));
    busy
}
