//! Every kernel datapath changes its subscribers under load without a gap and without a stray copy.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relay::plan::{Stream, StreamId, SubscriberId};

use crate::common::frame::{Frame, ReceivedFrame};
use crate::common::plan_rig::{DATAPATHS, INGEST, Rig, SENDER, assert_identities, plan, stream};

#[test]
fn subscribers_come_and_go_without_a_gap_or_a_stray_copy() {
    const CHANGES: usize = 50;
    const MAX_FRAMES: u32 = 5000;
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for datapath in DATAPATHS {
        let few = rig.stream(2, INGEST);
        let many = Stream {
            subscribers: (0..7).map(|i| rig.subscriber(i, true)).collect(),
            ..few.clone()
        };
        let mut running = rig.start(datapath, &plan(&few));
        let done = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                // A veth queues the frames of each CPU apart: a sender that moves overtakes itself.
                sys::sched::pin(0).unwrap();
                let mut number = 0_u32;
                // No more than the capture has room for, however long the changes take.
                while !done.load(Ordering::Relaxed) && number < MAX_FRAMES {
                    let mut frame = Frame::new(SENDER, INGEST, 64);
                    frame.payload[..4].copy_from_slice(&number.to_be_bytes());
                    rig.send(&frame);
                    number += 1;
                    // Receivers and this test share the CPUs with the relay.
                    std::thread::sleep(Duration::from_micros(500));
                }
                number
            });
            for _ in 0..CHANGES {
                rig.relay.run(|| running.reconfigure(&plan(&many)).unwrap());
                rig.relay.run(|| running.reconfigure(&plan(&few)).unwrap());
            }
            done.store(true, Ordering::Relaxed);
            sender.join().unwrap()
        });
        let counters = running.stop();
        // Those two had every datagram; nothing of the others is on its way after the last.
        let mut arrived = Vec::new();
        while arrived
            .iter()
            .filter(|one: &&ReceivedFrame| one.destination.port() < 7002)
            .count()
            < 2 * sent as usize
        {
            arrived.extend(capture.take(1));
        }
        arrived.extend(capture.rest());
        for port in 7000..7007_u16 {
            let numbers: Vec<u32> = arrived
                .iter()
                .filter(|arrived| arrived.destination.port() == port)
                .map(|arrived| u32::from_be_bytes(arrived.payload[..4].try_into().unwrap()))
                .collect();
            assert!(
                numbers.is_sorted_by(|a, b| a < b),
                "{}: {port}",
                datapath.name()
            );
            assert!(
                port > 7001 || numbers.len() == sent as usize,
                "{}: {port}",
                datapath.name()
            );
        }
        assert_identities(stream(&counters));
    }
    assert_eq!(capture.rest(), []);
}

#[test]
fn counts_are_read_of_what_is_there_only() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for datapath in DATAPATHS {
        let first = rig.stream(1, INGEST);
        let mut running = rig.start(datapath, &plan(&first));
        for number in 0..20 {
            let mut next = first.clone();
            next.id = StreamId(4 + number);
            next.subscribers[0].id = SubscriberId(200 + number);
            rig.relay.run(|| running.reconfigure(&plan(&next)).unwrap());
        }
        let counters = running.counters();
        // The last two: the counts of the one that left are read once more.
        let subscribers = counters.streams.values().map(|one| one.subscribers.len());
        let found = (counters.streams.len(), subscribers.sum::<usize>());
        assert_eq!(found, (2, 2), "{}", datapath.name());
        running.stop();
    }
}

#[test]
fn changes_of_subscribers_leave_no_maps_behind() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for datapath in DATAPATHS {
        let none = rig.stream(0, INGEST);
        let one = Stream {
            subscribers: vec![rig.subscriber(0, true)],
            ..none.clone()
        };
        let mut running = rig.start(datapath, &plan(&none));
        let files = |running: &mut relay::Running, times: usize| {
            for _ in 0..times {
                rig.relay.run(|| running.reconfigure(&plan(&one)).unwrap());
                rig.relay.run(|| running.reconfigure(&plan(&none)).unwrap());
            }
            maps()
        };
        let before = files(&mut running, 5);
        // Other tests of this process open and close maps of their own.
        let after = files(&mut running, 40);
        assert!(
            after < before + 40,
            "{}: {before} maps, then {after}",
            datapath.name()
        );
        running.stop();
    }
}

/// The devmaps that this process has open.
fn maps() -> usize {
    let folder = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let infos = folder
        .flatten()
        .filter_map(|one| std::fs::read_to_string(one.path()).ok());
    // `BPF_MAP_TYPE_DEVMAP`
    infos
        .filter(|info| info.contains("map_type:\t14\n"))
        .count()
}
