//! The programs themselves, on frames they are fed one by one: every count must be exact.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

use libbpf_rs::{OpenObject, ProgramInput, ProgramMut};
use packet::payload;

use super::*;

const FIRST: &str = "192.0.2.1:5004";
const SECOND: &str = "[2001:db8::2]:5006";

fn config(key: MatchKey) -> DelayConfig {
    let point = || Point {
        namespace: Namespace::current().unwrap(),
        ifindex: 1,
    };
    let subscriber = |address: &str, flow| Subscriber {
        address: address.parse().unwrap(),
        flow,
    };
    DelayConfig {
        sender: Some(point()),
        receivers: vec![point(), point()],
        key,
        stamp: StampFrom::Egress,
        subscribers: vec![subscriber(FIRST, 0), subscriber(SECOND, 0)],
        capacity: 128,
        window: 64,
        split_histograms: true,
        null: false,
    }
}

/// An Ethernet frame with one UDP datagram.
fn frame(to: &str, payload: &[u8]) -> Vec<u8> {
    let to: SocketAddr = to.parse().unwrap();
    let udp_len = u16::try_from(8 + payload.len()).unwrap();
    let mut frame = vec![0; 12];
    match to.ip() {
        IpAddr::V4(ip) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + udp_len).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9]);
            frame.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(udp_len.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend([0; 16]);
            frame.extend(ip.octets());
        }
    }
    frame.extend([0x13, 0x88]);
    frame.extend(to.port().to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn ours(run: u32, flow: u32, sequence: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; 60];
    let header = payload::Header {
        run,
        flow,
        sequence,
        intended_ns: 0,
        sent_ns: 1,
    };
    header.write(&mut bytes);
    bytes
}

fn rtp(source: u32, sequence: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 96];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(source.to_be_bytes());
    bytes.extend([7; 30]);
    bytes
}

fn pass(program: &ProgramMut<'_>, frame: &[u8]) {
    let input = ProgramInput {
        data_in: Some(frame),
        ..Default::default()
    };
    let verdict = program.test_run(input).unwrap().return_value;
    assert_eq!(
        verdict,
        u32::MAX,
        "a probe must leave the verdict to others"
    );
}

/// The loaded programs, and the probe that reads their maps.
struct Bench<'obj> {
    skel: skel::DelaySkel<'obj>,
    probe: DelayProbe,
}

impl<'obj> Bench<'obj> {
    fn of(config: &DelayConfig, storage: &'obj mut MaybeUninit<OpenObject>) -> Self {
        let skel = load(config, storage).unwrap();
        let probe = DelayProbe::reading(config, &skel, Vec::new()).unwrap();
        Self { skel, probe }
    }

    fn departs(&self, payload: &[u8]) {
        pass(
            &self.skel.progs.stamp_departure,
            &frame("10.0.0.1:9", payload),
        );
    }

    fn arrives(&self, to: &str, payload: &[u8]) {
        pass(&self.skel.progs.match_arrival_1, &frame(to, payload));
    }

    fn report(&self) -> Report {
        self.probe.report(None).unwrap()
    }
}

#[test]
fn loss_duplication_reordering_and_foreign_packets_are_exact() {
    if !sys::require::root() {
        return;
    }
    let config = config(MatchKey::Lowroad { run: 7 });
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    for sequence in 0..10 {
        bench.departs(&ours(7, 0, sequence));
    }
    bench.departs(&ours(6, 0, 0));
    bench.departs(&[0; 60]);
    // 3 and 4 are lost, 6 arrives after 7, 8 arrives twice.
    for sequence in [0, 1, 2, 5, 7, 6, 8, 8, 9] {
        bench.arrives(FIRST, &ours(7, 0, sequence));
    }
    bench.arrives(FIRST, &ours(7, 1, 0));
    bench.arrives(FIRST, &ours(6, 0, 3));
    bench.arrives("192.0.2.1:5005", &ours(7, 0, 3));
    bench.arrives("192.0.2.1:5005", &ours(6, 0, 3));
    bench.arrives(SECOND, &ours(7, 0, 0));

    let report = bench.report();
    assert_eq!(report.sent, [10]);
    let sender = report.sender.unwrap();
    assert_eq!((sender.packets, sender.matched, sender.stale), (12, 10, 1));
    let receiver = report.receivers[1];
    assert_eq!(
        (receiver.matched, receiver.foreign, receiver.stale),
        (14, 1, 1)
    );
    assert_eq!(report.receivers[0].packets, 0);

    let first = &report.subscribers[0];
    assert_eq!((first.received, first.unique, first.duplicates), (11, 8, 1));
    assert_eq!(
        (first.foreign, first.missing, first.longest_loss),
        (2, 2, 2)
    );
    assert_eq!(
        (first.reordered, first.unmatched, first.negative),
        (1, 0, 0)
    );
    assert_eq!(first.delay.as_ref().unwrap().count(), 8);
    let second = &report.subscribers[1];
    assert_eq!(
        (second.unique, second.missing, second.longest_loss),
        (1, 9, 9)
    );
    assert_eq!(report.delay.count(), 9);
    assert_eq!(report.violations(), Vec::<String>::new());
    assert_eq!(bench.probe.arrived().unwrap(), 14);
}

#[test]
fn an_overwritten_stamp_and_a_full_bitmap_are_reported() {
    if !sys::require::root() {
        return;
    }
    let config = config(MatchKey::Lowroad { run: 7 });
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    for sequence in 0..129 {
        bench.departs(&ours(7, 0, sequence));
    }
    bench.arrives(FIRST, &ours(7, 0, 64));
    bench.arrives(FIRST, &ours(7, 0, 128));
    let report = bench.report();
    let first = &report.subscribers[0];
    assert_eq!((first.unique, first.unmatched, first.beyond), (1, 1, 1));
    assert_eq!(report.violations().len(), 2, "{:?}", report.violations());
}

#[test]
fn rtp_sequence_numbers_wrap() {
    if !sys::require::root() {
        return;
    }
    let mut config = config(MatchKey::Rtp {
        sources: vec![0xfeed],
    });
    config.subscribers.truncate(1);
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    let sequence = |i: u16| 65_500_u16.wrapping_add(i);
    for i in 0..100 {
        bench.departs(&rtp(0xfeed, sequence(i)));
    }
    bench.departs(&rtp(0xbeef, 1));
    for i in (40..100).rev().chain(40..50) {
        bench.arrives(FIRST, &rtp(0xfeed, sequence(i)));
    }
    bench.arrives(FIRST, &rtp(0xbeef, 1));
    let report = bench.report();
    let first = &report.subscribers[0];
    assert_eq!(report.sent, [100]);
    assert_eq!(
        (first.received, first.unique, first.duplicates),
        (70, 60, 10)
    );
    assert_eq!(
        (first.missing, first.longest_loss, first.reordered),
        (40, 40, 59)
    );
    assert_eq!(first.delay.as_ref().unwrap().count(), 60);
    assert_eq!(report.violations(), Vec::<String>::new());
}

#[test]
fn payloads_differ_by_last_byte() {
    if !sys::require::root() {
        return;
    }
    let mut config = config(MatchKey::PayloadHash);
    config.window = 4096;
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    let payload = |i: u8| {
        let mut bytes = vec![0x5a; 33];
        bytes[32] = i;
        bytes
    };
    for i in 0..20 {
        bench.departs(&payload(i));
    }
    for i in [0, 1, 3, 2, 3] {
        bench.arrives(SECOND, &payload(i));
    }
    bench.arrives(SECOND, &payload(99));
    let report = bench.report();
    let second = &report.subscribers[1];
    assert_eq!(
        (second.received, second.unique, second.duplicates),
        (6, 4, 1)
    );
    assert_eq!(
        (second.foreign, second.missing, second.reordered),
        (1, 16, 1)
    );
    assert_eq!(report.violations(), Vec::<String>::new());

    bench.departs(&payload(7));
    assert_eq!(bench.report().sender.unwrap().collisions, 1);
    assert_eq!(bench.report().violations().len(), 1);
}

#[test]
fn payloads_whose_hashes_share_a_slot_are_all_found() {
    if !sys::require::root() {
        return;
    }
    let mut config = config(MatchKey::PayloadHash);
    config.window = 4;
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    let payloads = |i: std::ops::Range<u8>| i.map(|i| [i; 100]);
    payloads(0..4).for_each(|payload| bench.departs(&payload));
    payloads(0..4).for_each(|payload| bench.arrives(FIRST, &payload));
    // The oldest makes room.
    payloads(4..5).for_each(|payload| bench.departs(&payload));
    payloads(0..5).for_each(|payload| bench.arrives(SECOND, &payload));
    let report = bench.report();
    let [first, second] = [0, 1].map(|at: usize| &report.subscribers[at]);
    assert_eq!((first.unique, first.foreign, first.reordered), (4, 0, 0));
    assert_eq!((second.unique, second.foreign, second.reordered), (4, 1, 0));
    assert_eq!(report.violations(), Vec::<String>::new());
}

#[test]
fn the_padding_of_a_short_frame_is_no_payload() {
    if !sys::require::root() {
        return;
    }
    let config = config(MatchKey::PayloadHash);
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    bench.departs(b"short");
    let mut padded = frame(FIRST, b"short");
    padded.resize(60, 0);
    pass(&bench.skel.progs.match_arrival_1, &padded);
    bench.arrives(FIRST, b"short\0");
    let report = bench.report();
    let first = &report.subscribers[0];
    assert_eq!((first.received, first.unique, first.foreign), (2, 1, 1));
    assert_eq!(report.violations(), Vec::<String>::new());
}

#[test]
fn superframes_are_flagged() {
    if !sys::require::root() {
        return;
    }
    let config = config(MatchKey::Lowroad { run: 7 });
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    // `struct __sk_buff`: gso_segs is at byte 164 of 192.
    let mut context = [0; 192];
    context[164] = 3;
    let frame = frame(FIRST, &ours(7, 0, 0));
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(&frame),
        ..Default::default()
    };
    bench.skel.progs.match_arrival_0.test_run(input).unwrap();
    let report = bench.report();
    assert_eq!(report.receivers[0].superframes, 1);
    assert!(report.violations().contains(&"1 GSO superframes".into()));
}

#[test]
fn stamps_in_the_payload_need_no_sender() {
    if !sys::require::root() {
        return;
    }
    let mut config = config(MatchKey::Lowroad { run: 7 });
    config.sender = None;
    config.stamp = StampFrom::Payload;
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    bench.arrives(FIRST, &ours(7, 0, 5));
    let report = bench.probe.report(Some(&[6])).unwrap();
    assert_eq!(report.sender, None);
    assert_eq!(
        (report.subscribers[0].unique, report.subscribers[0].missing),
        (1, 5)
    );
    assert_eq!(report.delay.count(), 1);
}

#[test]
fn the_null_probe_only_counts() {
    if !sys::require::root() {
        return;
    }
    let mut config = config(MatchKey::Lowroad { run: 7 });
    config.null = true;
    let mut storage = MaybeUninit::uninit();
    let bench = Bench::of(&config, &mut storage);
    bench.departs(&ours(7, 0, 0));
    bench.arrives(FIRST, &ours(7, 0, 0));
    let report = bench.report();
    assert_eq!(report.sent, [0]);
    assert_eq!(report.receivers[1].packets, 1);
    assert_eq!(report.receivers[1].matched, 1);
    assert!(report.delay.is_empty());
}

#[test]
fn contradictions_are_refused() {
    let refused = |change: fn(&mut DelayConfig)| {
        let mut config = config(MatchKey::Lowroad { run: 7 });
        change(&mut config);
        matches!(check(&config), Err(Error::Config(_)))
    };
    assert!(!refused(|_| {}));
    assert!(refused(|c| c.sender = None));
    assert!(refused(|c| c.receivers.clear()));
    assert!(refused(|c| c.subscribers.clear()));
    assert!(refused(|c| c.capacity = 0));
    assert!(refused(|c| c.key = MatchKey::Rtp { sources: vec![] }));
    assert!(refused(|c| {
        c.key = MatchKey::PayloadHash;
        c.subscribers[1].flow = 1;
    }));
    assert!(refused(|c| {
        c.key = MatchKey::PayloadHash;
        c.window = 3;
    }));
    assert!(refused(|c| {
        c.key = MatchKey::PayloadHash;
        c.stamp = StampFrom::Payload;
    }));
}
