//! The kernel's records of packets against the userspace dissector's packets.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use features::dissect::Packet;
use features::flow::{Flow, Table};
use features::kernel::{Clock, PacketPlane, PacketRings, Settings, Wakeup};
use features::{Options, PacketReader};
use packet::build;
use packet::pcap::OwnedFrame;

use crate::kernel::frames::{conversation, kinds};
use crate::kernel::{MIN_FRAME, assert_same_rows, captured, captures, frames, pin, run};

fn load(options: Options, ring_bytes: u32) -> (PacketPlane, PacketRings) {
    pin();
    let settings = Settings {
        options,
        clock: Clock::Metadata,
        ring_bytes,
        ..Settings::default()
    };
    load_for_one(&settings)
}

fn load_for_one(settings: &Settings) -> (PacketPlane, PacketRings) {
    let (plane, mut rings) = PacketPlane::load(settings).unwrap();
    (plane, rings.remove(0))
}

/// The packets of these frames by both, and the flows that they make; all without loss.
fn compare(what: &str, options: &Options, frames: &[OwnedFrame]) {
    let mut reader = PacketReader::new(options);
    let mut expected = Table::new(options.timers, options.limits);
    let mut expected_flows = Vec::new();
    let mut found = Table::new(options.timers, options.limits);
    let mut found_flows = Vec::new();
    let (plane, mut rings) = load(options.clone(), 4096);
    for captured in frames {
        let packet = reader.read(&captured.as_frame());
        run(plane.program(), captured);
        let mut recorded = None;
        rings.collect(i64::MAX, |packet| recorded = Some(*packet));
        assert_eq!(text(packet), text(recorded), "{what}: {captured:02x?}");
        if let (Some(packet), Some(recorded)) = (packet, recorded) {
            expected.add(&packet, &mut |flow| expected_flows.push(*flow));
            found.add(&recorded, &mut |flow| found_flows.push(*flow));
        }
    }
    expected.drain(&mut |flow| expected_flows.push(*flow));
    found.drain(&mut |flow| found_flows.push(*flow));
    let account = plane.account().unwrap();
    assert_eq!(account.packets, account.exported + account.refused());
    let packets: u64 = found_flows.iter().map(Flow::packets).sum();
    assert_eq!(packets, account.exported);
    assert_same_rows(what, expected_flows, found_flows);
}

/// Everything but the bytes, which a record does not carry.
fn text(packet: Option<Packet<'_>>) -> String {
    let packet = packet.map(|packet| Packet {
        payload: &[],
        network: &[],
        ..packet
    });
    format!("{packet:?}")
}

#[test]
fn every_kind_of_frame_is_recorded_alike() {
    if !sys::require::root() {
        return;
    }
    let frames: Vec<OwnedFrame> = (1..)
        .zip(kinds())
        .map(|(time, frame)| {
            let length = u32::try_from(frame.len()).unwrap();
            captured(time * 1000, frame, length)
        })
        .collect();
    compare("kinds", &Options::default(), &frames);
    let options = Options {
        by_vlan: true,
        ..Options::default()
    };
    compare("kinds by VLAN", &options, &frames);
}

#[test]
fn conversations_make_the_same_flows() {
    if !sys::require::root() {
        return;
    }
    compare("conversation", &Options::default(), &conversation(9, 3000));
}

#[test]
fn every_outside_capture_is_recorded_alike() {
    if !sys::require::root() {
        return;
    }
    let Some(captures) = captures() else { return };
    for path in captures {
        let mut frames = frames(&path);
        frames.retain(|captured| captured.frame.len() >= MIN_FRAME);
        compare(&path.display().to_string(), &Options::default(), &frames);
    }
}

#[test]
fn packets_without_room_are_dropped_by_name() {
    if !sys::require::root() {
        return;
    }
    let (plane, mut rings) = load(Options::default(), 4096);
    for frame in &conversation(1, 100) {
        run(plane.program(), frame);
    }
    let mut recorded = 0;
    rings.collect(i64::MAX, |_| recorded += 1);
    // A record and its header are 128 bytes, and a ring is never quite full.
    assert_eq!(recorded, 31);
    let account = plane.account().unwrap();
    assert_eq!((account.exported, account.lost_ring_full), (31, 69));
}

#[test]
fn a_sleeping_reader_is_woken_at_half_a_ring_or_for_each_record() {
    if !sys::require::root() {
        return;
    }
    let frames = conversation(1, 31);
    for (wakeup, fewest) in [(Wakeup::Adaptive, 16), (Wakeup::Every, 1)] {
        let settings = Settings {
            clock: Clock::Metadata,
            ring_bytes: 4096,
            wakeup,
            ..Settings::default()
        };
        let (plane, mut rings) = load_for_one(&settings);
        let deadline = Instant::now() + Duration::from_secs(20);
        // A reader that a busy machine keeps from sleeping finds the ring full instead.
        while !woken(&plane, &rings, &frames) {
            assert!(Instant::now() < deadline, "{wakeup:?}");
            rings.collect(i64::MAX, |_| {});
        }
        let mut recorded = 0;
        rings.collect(i64::MAX, |_| recorded += 1);
        assert!(recorded >= fewest, "{recorded}");
    }
}

/// Whether one of these frames has woken a reader.
fn woken(plane: &PacketPlane, rings: &PacketRings, frames: &[OwnedFrame]) -> bool {
    thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            for frame in frames {
                thread::sleep(Duration::from_millis(2));
                run(plane.program(), frame);
            }
        });
        rings.wait().unwrap()
    })
}

#[test]
fn packets_of_several_cpus_come_in_the_order_of_their_times() {
    if !sys::require::root() {
        return;
    }
    let cpus = sys::sched::allowed_cpus().unwrap();
    let (plane, mut rings) = load(Options::default(), 1 << 16);
    let frames = conversation(3, 60);
    let mut times = Vec::new();
    for (index, mut frame) in frames.into_iter().enumerate() {
        frame.timestamp_ns = 1000 + i64::try_from(index).unwrap();
        times.push(frame.timestamp_ns);
        sys::sched::pin(cpus[index % cpus.len()]).unwrap();
        run(plane.program(), &frame);
    }
    let mut recorded = Vec::new();
    rings.collect(1030, |packet| recorded.push(packet.time_ns));
    assert_eq!(recorded, times[..30], "younger ones wait");
    rings.collect(i64::MAX, |packet| recorded.push(packet.time_ns));
    assert_eq!(recorded, times);
}

#[test]
fn readers_share_packets_by_their_flows() {
    const READERS: u32 = 3;
    if !sys::require::root() {
        return;
    }
    pin();
    let settings = Settings {
        clock: Clock::Metadata,
        readers: READERS,
        ..Settings::default()
    };
    let (plane, mut rings) = PacketPlane::load(&settings).unwrap();
    let frames = both_ways(100);
    for frame in &frames {
        run(plane.program(), frame);
    }
    let mut reader_of = HashMap::new();
    let mut packets = vec![0; rings.len()];
    for (reader, rings) in rings.iter_mut().enumerate() {
        rings.collect(i64::MAX, |packet| {
            packets[reader] += 1;
            let flow = format!("{:?}", packet.key);
            let first = *reader_of.entry(flow).or_insert(reader);
            assert_eq!(first, reader, "{packet:?}");
        });
    }
    assert_eq!(packets.iter().sum::<usize>(), frames.len());
    assert!(packets.iter().all(|&got| got > 0), "{packets:?}");
}

/// A datagram, a first and a later fragment in each direction of so many flows.
fn both_ways(flows: u16) -> Vec<OwnedFrame> {
    let mut frames = Vec::new();
    for flow in 0..flows {
        let ends = [
            format!("192.0.2.1:{}", 2000 + flow),
            "192.0.2.2:53".to_owned(),
        ];
        let ends = ends.map(|end| end.parse().unwrap());
        for (source, destination) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let datagram = || build::udp(source, destination).identification(flow);
            frames.push(datagram().frame());
            frames.push(datagram().fragment(0, true).frame());
            frames.push(datagram().fragment(64, false).frame());
        }
    }
    let frames = frames.into_iter().map(|frame| {
        let length = u32::try_from(frame.len()).unwrap();
        captured(1_700_000_000_000_000_000, frame, length)
    });
    frames.collect()
}
