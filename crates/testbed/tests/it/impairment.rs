//! An impaired link carries what its plan keeps, whole and not before it is due.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use testbed::{Bed, HostSpec, Impairment, LinkSpec, Topology};

use crate::bed_lock;

fn bed(run: &str, impairment: Impairment) -> Bed {
    let mut topology = Topology::default();
    for name in ["left", "right"] {
        topology.host.insert(name.to_owned(), HostSpec::native());
    }
    topology.link = vec![LinkSpec::impaired(&["left", "right"], impairment)];
    Bed::up(&topology, run).unwrap()
}

/// Sends `packets` numbers from left to right; which of them arrived, in their order.
fn arrived(bed: &Bed, packets: u32, quiet: Duration) -> Vec<u32> {
    let right = bed.host("right").unwrap();
    let address = SocketAddr::new(right.interface("left").unwrap().v4, 0);
    let receiver = right.run(|| UdpSocket::bind(address).unwrap()).unwrap();
    receiver.set_read_timeout(Some(quiet)).unwrap();
    let target = receiver.local_addr().unwrap();
    let left = bed.host("left").unwrap();
    left.run(|| {
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        for number in 0..packets {
            sender.send_to(&number.to_be_bytes(), target).unwrap();
        }
    })
    .unwrap();
    let mut numbers = Vec::new();
    let mut payload = [0; 8];
    while let Ok(4) = receiver.recv(&mut payload) {
        numbers.push(u32::from_be_bytes(payload[..4].try_into().unwrap()));
    }
    numbers
}

#[test]
fn frames_come_whole_and_not_before_they_are_due() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let impairment = Impairment {
        delay_us: 30_000,
        ..Impairment::default()
    };
    let bed = bed("due", impairment);
    let settings = &bed.settings()["link.left-right.impairment"];
    assert_eq!(settings["delay-us"], 30_000);
    let before = Instant::now();
    assert_eq!(arrived(&bed, 1, Duration::from_secs(5)), [0]);
    assert!(before.elapsed() >= Duration::from_millis(30));
}

#[test]
fn the_seed_decides_what_is_lost_and_what_overtakes() {
    if !sys::require::root() {
        return;
    }
    let _beds = bed_lock::shared();
    let lossy = Impairment {
        jitter_us: 2_000,
        loss_ppm: 300_000,
        seed: 4,
        ..Impairment::default()
    };
    let quiet = Duration::from_secs(5);
    let jittered = arrived(&bed("lossy", lossy), 200, quiet);
    assert!((90..190).contains(&jittered.len()), "{}", jittered.len());
    assert!(!jittered.is_sorted());
    let ordered = Impairment {
        keep_order: true,
        ..lossy
    };
    assert!(arrived(&bed("ordered", ordered), 200, quiet).is_sorted());
}
