//! Every back end over a veth pair: what it says it sent is what arrives, byte for byte.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::libbpf_sys;
use loadgen::{Amount, Backend, Error, FarCounts, FarEnd, Load, SendReport, Verdict};
use netdev::attach::{self, Direction};
use packet::payload::{self, Header};
use sys::mmsg::{DONT_WAIT, RecvBatch};
use sys::socket::{self, Family};

use crate::support::{self, Topology};

const BACKENDS: [Backend; 3] = [Backend::Socket, Backend::AfXdp, Backend::Live];

/// A receiver that can hold every packet of a test.
fn receiver(address: SocketAddr) -> UdpSocket {
    let socket = socket::unbound(Family::from(address.ip())).unwrap();
    socket::receive_buffer(&socket, 64 << 20).unwrap();
    socket::bind(&socket, address).unwrap();
    socket
}

fn arrived(far: &FarEnd, sent: &SendReport) -> FarCounts {
    support::until(|| far.counts().unwrap().packets() >= sent.sent);
    far.counts().unwrap()
}

/// Everything a socket gets: each datagram must be the next of its flow, and unharmed.
fn read_in_order(socket: &UdpSocket, load: &Load, flow: u32, expected: u64) {
    let mut batch = RecvBatch::new(64, 2048);
    let mut next = 0;
    let mut filler = Vec::new();
    // The device counts a frame before the socket has it.
    support::until(|| {
        while batch.receive(socket, DONT_WAIT).is_ok() {
            for (meta, bytes) in batch.iter() {
                assert_eq!(meta.source, Some(load.source));
                let header = Header::read(bytes).expect("our header");
                assert_eq!((header.run, header.flow), (load.run, flow));
                assert_eq!(header.sequence, next);
                assert!(header.intended_ns <= header.sent_ns && header.sent_ns > 0);
                assert_eq!(bytes.len(), load.payload_len);
                filler.resize(bytes.len(), 0);
                (0..=255)
                    .cycle()
                    .zip(&mut filler)
                    .for_each(|(i, byte)| *byte = i);
                assert_eq!(bytes[payload::LEN..], filler[payload::LEN..]);
                next += 1;
            }
        }
        next >= expected
    });
    assert_eq!(next, expected);
}

#[test]
fn what_is_sent_arrives_whole_in_order_and_counted() {
    if !sys::require::root() {
        return;
    }
    for v6 in [false, true] {
        for backend in BACKENDS {
            let world = Topology::new();
            let mut load = world.load(backend.clone(), v6, 3);
            // Fewer than a veth ring holds, so that a delayed softirq cannot make it overflow.
            load.amount = Amount::Packets(200);
            load.rate = Some(20_000.0);
            load.burst = 7;
            let (sent, counts, receivers) = world
                .far
                .run(|| {
                    let far = FarEnd::attach(world.far_index, 77, 3, Verdict::Pass).unwrap();
                    let receivers: Vec<_> =
                        load.destinations.iter().map(|&d| receiver(d)).collect();
                    let sent = world.generate(&load).unwrap();
                    let counts = arrived(&far, &sent);
                    (sent, counts, receivers)
                })
                .unwrap();
            assert_eq!((sent.scheduled, sent.sent), (200, 200), "{sent:?}");
            assert_eq!((sent.refused, sent.errors), (0, 0));
            assert_eq!(sent.flows, [67, 67, 66], "{}", backend.name());
            assert_eq!(counts.flows, sent.flows, "{}", backend.name());
            let headers = if v6 { 62 } else { 42 };
            assert_eq!(counts.bytes, 200 * (headers + 101));
            for ((flow, socket), &expected) in (0..).zip(&receivers).zip(&sent.flows) {
                read_in_order(socket, &load, flow, expected);
            }
        }
    }
}

#[test]
fn live_frames_are_due_when_their_schedule_says() {
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let mut load = world.load(Backend::Live, false, 1);
    load.rate = Some(10_000.0);
    load.burst = 5;
    load.amount = Amount::Time(std::time::Duration::from_millis(20));
    world
        .far
        .run(|| {
            let far = FarEnd::attach(world.far_index, 77, 1, Verdict::Pass).unwrap();
            let socket = receiver(load.destinations[0]);
            let sent = world.generate(&load).unwrap();
            assert_eq!(sent.sent, 200);
            assert_eq!(sent.lateness.count(), 200);
            arrived(&far, &sent);
            let mut batch = RecvBatch::new(256, 2048);
            let mut due = Vec::new();
            support::until(|| {
                while batch.receive(&socket, DONT_WAIT).is_ok() {
                    due.extend(
                        batch
                            .iter()
                            .filter_map(|(_, bytes)| Header::read(bytes))
                            .map(|header| header.intended_ns),
                    );
                }
                due.len() >= 200
            });
            let bursts = (0..200_u64).map(|packet| due[0] + packet / 5 * 5 * 100_000);
            assert_eq!(due, bursts.collect::<Vec<_>>());
        })
        .unwrap();
}

#[test]
fn live_frames_go_as_fast_as_they_can_without_a_rate() {
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let mut load = world.load(Backend::Live, false, 2);
    load.amount = Amount::Packets(100);
    world
        .far
        .run(|| {
            let far = FarEnd::attach(world.far_index, 77, 2, Verdict::Drop).unwrap();
            let sent = world.generate(&load).unwrap();
            assert_eq!((sent.sent, sent.lateness.count()), (100, 0));
            assert!(sent.sending_ns > 0 && sent.sending_ns <= sent.elapsed_ns);
            assert_eq!(arrived(&far, &sent).flows, [50, 50]);
        })
        .unwrap();
}

#[test]
fn only_the_own_run_is_counted_and_dropped() {
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let mut load = world.load(Backend::Socket, false, 1);
    load.amount = Amount::Packets(10);
    world
        .far
        .run(|| {
            let far = FarEnd::attach(world.far_index, 77, 1, Verdict::Drop).unwrap();
            let receiver = receiver(load.destinations[0]);
            world.generate(&load).unwrap();
            load.run = 78;
            world.generate(&load).unwrap();
            support::until(|| far.counts().unwrap().foreign >= 10);
            assert_eq!(far.counts().unwrap().flows, [10]);
            read_in_order(&receiver, &load, 0, 10);
        })
        .unwrap();
}

/// A tc program that drops every other packet, by chance, so that sending it fails with ENOBUFS:
/// `return (bpf_get_prandom_u32() & 1) * 2;`
fn lossy_program() -> OwnedFd {
    let program: [[u8; 8]; 4] = [
        [0x85, 0, 0, 0, 7, 0, 0, 0],
        [0x57, 0, 0, 0, 1, 0, 0, 0],
        [0x67, 0, 0, 0, 1, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    // SAFETY: the name and the licence end with NUL, an instruction is eight bytes, and all
    // outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"lossy".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            program.as_ptr().cast(),
            program.len() as u64,
            ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "the lossy program does not load: {fd}");
    // SAFETY: the call above opened the descriptor, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[test]
fn packets_beyond_device_queue_are_refused() {
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let mut load = world.load(Backend::Socket, false, 2);
    load.amount = Amount::Packets(200);
    // The rest of a burst after a refusal is refused, too.
    load.burst = 1;
    let program = lossy_program();
    let _lossy = world
        .near
        .run(|| {
            let egress = Direction::Egress;
            attach::tc(program.as_fd(), world.near_index, egress, attach::tc_via()).unwrap()
        })
        .unwrap();
    world
        .far
        .run(|| {
            let far = FarEnd::attach(world.far_index, 77, 2, Verdict::Drop).unwrap();
            let sent = world.generate(&load).unwrap();
            assert!(sent.refused > 0 && sent.sent > 0, "{sent:?}");
            assert_eq!(sent.sent + sent.refused, 200);
            assert_eq!(sent.flows.iter().sum::<u64>(), sent.sent);
            assert_eq!(arrived(&far, &sent).flows, sent.flows);
        })
        .unwrap();
}

#[test]
fn a_closed_port_does_not_disturb_the_count() {
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let mut load = world.load(Backend::Socket, true, 1);
    load.amount = Amount::Packets(50);
    load.burst = 1;
    world
        .far
        .run(|| {
            let far = FarEnd::attach(world.far_index, 77, 1, Verdict::Pass).unwrap();
            let sent = world.generate(&load).unwrap();
            assert_eq!((sent.sent, sent.errors), (50, 0), "{sent:?}");
            assert_eq!(arrived(&far, &sent).flows, [50]);
        })
        .unwrap();
}

#[test]
fn loads_that_make_no_sense_are_refused_in_words() {
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let refused = |change: fn(&mut Load), backend, words: &str| {
        let mut load = world.load(backend, false, 1);
        load.amount = Amount::Packets(1);
        change(&mut load);
        let error = world.generate(&load).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(|load| load.payload_len = 39, Backend::Socket, "40 to 65507");
    refused(|load| load.burst = 0, Backend::Socket, "1 to 1024");
    refused(|load| load.rate = Some(10.0), Backend::Live, "slower");
    let large_bursts: fn(&mut Load) = |load| {
        load.rate = Some(1e3);
        load.burst = 257;
    };
    refused(large_bursts, Backend::Live, "at most 256");
    refused(|load| load.payload_len = 1500, Backend::AfXdp, "MTU");
    refused(
        |load| load.destinations.clear(),
        Backend::Live,
        "destination",
    );
    refused(
        |load| load.source = "[2001:db8::1]:1".parse().unwrap(),
        Backend::Socket,
        "cannot be reached",
    );
    let oversized: fn(&mut Load) = |load| load.payload_len = 1473;
    refused(oversized, Backend::Socket, "too long");
    refused(|load| load.ifindex = 999, Backend::AfXdp, "999");
    let unroutable: fn(&mut Load) =
        |load| load.destinations = vec!["203.0.113.1:1".parse().unwrap()];
    refused(unroutable, Backend::Socket, "unreachable");
    let error = Error::Load("said".into());
    assert_eq!(error.to_string(), "said");
}
