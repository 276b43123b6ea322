//! Filters and sampling on every live datapath: what userspace chooses of the same frames.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use datapath::Datapath;
use features::counters::Counters;
use features::filter::{Rules, Selection, Tier};
use features::kernel::Wakeup;
use features::live::{Direction, Features, Plan, datapaths};
use features::sink::Nowhere;
use features::{Options, PacketReader, schema};
use packet::pcap::OwnedFrame;

use crate::kernel::frames::conversation;
use crate::kernel::wire::Wire;

/// What came of these frames on a datapath under these rules.
fn capture(datapath: &dyn Datapath<Features>, rules: &Rules, frames: &[OwnedFrame]) -> Counters {
    let wire = Wire::new();
    let plan = Plan {
        interface: "eth0".to_owned(),
        ifindex: wire.ifindex,
        options: Options {
            selection: Selection::new(rules.clone()).unwrap(),
            ..Options::default()
        },
        schema: schema::find("nfstream.v1").unwrap(),
        direction: Direction::In,
        promiscuous: false,
        tap: datapath.name() == "af-xdp",
        workers: None,
        wakeup: Wakeup::default(),
        steer: false,
        recorder: None,
        sink: Arc::new(|| Box::new(Nowhere)),
        model: None,
    };
    let running = wire.near(|| datapath.start(&plan)).unwrap();
    let sender = wire.sender();
    for burst in frames.chunks(64) {
        for captured in burst {
            assert!(sender.send(&captured.frame));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while running.counters().account.seen.packets < frames.len() as u64 {
        assert!(Instant::now() < deadline, "{:?}", running.counters());
        thread::sleep(Duration::from_millis(20));
    }
    let counters = running.stop().counters.account;
    let name = datapath.name();
    assert_eq!(counters.unaccounted(), 0, "{name}: {counters:?}");
    assert_eq!(counters.seen.packets, frames.len() as u64, "{name}");
    counters
}

#[test]
fn every_datapath_chooses_what_userspace_chooses() {
    if !sys::require::root() {
        return;
    }
    let frames = conversation(4, 1500);
    let rules = Rules {
        filter: Some("src port 443 or udp and vlan 7".to_owned()),
        tiers: vec![Tier {
            expression: "tcp and less 200".to_owned(),
            rate: "2/3".parse().unwrap(),
        }],
        rate: "1/2".parse().unwrap(),
        seed: 2,
        ..Rules::default()
    };
    let mut reader = PacketReader::new(&Options {
        selection: Selection::new(rules.clone()).unwrap(),
        ..Options::default()
    });
    let kept = frames
        .iter()
        .filter(|captured| reader.read(&captured.as_frame()).is_some());
    let kept = kept.count() as u64;
    let expected = reader.seen();
    assert!(kept > 0 && expected.filtered > 0 && expected.sampled_out > 0);
    for datapath in datapaths() {
        let (name, found) = (datapath.name(), capture(&*datapath, &rules, &frames));
        assert_eq!(
            found.exported.packets, kept,
            "{name}: {found:?}, {expected:?}"
        );
        assert_eq!(found.seen.filtered, expected.filtered, "{name}");
        assert_eq!(found.seen.sampled_out, expected.sampled_out, "{name}");
    }
}

#[test]
fn every_datapath_keeps_to_the_limit() {
    if !sys::require::root() {
        return;
    }
    let frames = conversation(4, 500);
    let rules = Rules {
        most_per_second: NonZeroU32::new(1),
        ..Rules::default()
    };
    for datapath in datapaths() {
        let started = Instant::now();
        let (name, found) = (datapath.name(), capture(&*datapath, &rules, &frames));
        let most = started.elapsed().as_secs() + 2;
        assert!(
            (1..=most).contains(&found.exported.packets),
            "{name}: {found:?}"
        );
        assert_eq!(
            found.exported.packets + found.seen.rate_limited,
            500,
            "{name}"
        );
    }
}
