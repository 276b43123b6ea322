//! The last copy of the `tc` datapath goes to a veth's other end directly only where that changes
//! nothing: frames arrive the same either way, and what is put in their way sees them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]

use std::net::UdpSocket;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use netdev::attach::{self, Attachment, Direction, TcVia};
use netdev::{LinkSpec, NextHop, XdpMode};
use relay::Running;
use relay::plan::Stream;
use relay::tc::Tc;

use crate::common::frame::{Checksum, Frame, ReceivedFrame};
use crate::common::plan_rig::{
    Capture, FAMILIES, INGEST, Rig, SENDER, assert_identities, mac, plan, stream,
};
use crate::common::space::{Space, TIMEOUT, packet_socket};

/// Between datagrams: before the first pause they go through the device.
const PAUSE: Duration = Duration::from_millis(1);
const DIRECTLY: &str = "directly";
/// What `marker` writes over the first byte of a source address.
const MARK: u8 = 0x42;

/// A relay to one subscriber by out0.
struct Trial<'a> {
    rig: &'a Rig,
    running: Running,
    stream: Stream,
}

impl<'a> Trial<'a> {
    fn new(rig: &'a Rig, stream: Stream) -> Self {
        Self {
            running: rig.start(&Tc, &plan(&stream)),
            rig,
            stream,
        }
    }

    /// Waits until the last copy's way is told with these words.
    fn await_way(&self, words: &str) {
        let fast = self.running.fast_path().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let way = fast.last_copy(self.stream.id).unwrap();
            if way.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "{words}: {way}");
            std::thread::yield_now();
        }
    }

    /// What arrives of frames sent one by one.
    fn relay(&self, capture: &Capture, frames: &[Frame]) -> Vec<ReceivedFrame> {
        let relay = |frame| {
            self.rig.send(frame);
            let arrived = capture.take(1).remove(0);
            std::thread::sleep(PAUSE);
            arrived
        };
        frames.iter().map(relay).collect()
    }
}

/// Bytes that packets with this much payload have at least: of IPv4, without an Ethernet header.
fn wire_bytes(payloads: impl IntoIterator<Item = usize>) -> u64 {
    let lengths = payloads.into_iter().map(|payload| payload as u64 + 28);
    lengths.sum()
}

fn payloads(frames: &[Frame]) -> impl Iterator<Item = usize> {
    frames.iter().map(|frame| frame.payload.len())
}

/// Waits until a device has sent so many bytes since it started.
fn await_transmitted(space: &Space, device: &str, bytes: u64) {
    let deadline = Instant::now() + TIMEOUT;
    while transmitted(space, device) < bytes {
        assert!(
            Instant::now() < deadline,
            "the frames have left by {device}"
        );
        std::thread::yield_now();
    }
}

/// Bytes that a device has sent. Of its own accord it sends a packet now and then, and those are
/// short: they do not add up to the tests' frames.
fn transmitted(space: &Space, device: &str) -> u64 {
    let table = space.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = table.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == device).then_some(counts)
    });
    let mut counts = line.unwrap().split_ascii_whitespace();
    counts.nth(8).unwrap().parse().unwrap()
}

/// One subscriber by out0, of this family.
fn one(rig: &Rig, ingest: &str, v4: bool) -> Stream {
    let mut stream = rig.stream(0, ingest);
    stream.subscribers = vec![rig.subscriber(0, v4)];
    stream
}

fn frames(sender: &str, ingest: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    for size in [0, 1, 31, 200, 1199, 1444] {
        for checksum in [Checksum::Right, Checksum::None] {
            for tags in [
                vec![],
                vec![(0x8100, 0xe000)],
                vec![(0x88a8, 0), (0x8100, 0)],
            ] {
                let mut frame = Frame::new(sender, ingest, size);
                (frame.checksum, frame.tags) = (checksum, tags);
                frame.padding = 18_usize.saturating_sub(size);
                // IPv6 demands one.
                if checksum == Checksum::Right || sender == SENDER {
                    frames.push(frame);
                }
            }
        }
    }
    frames
}

#[test]
fn frames_arrive_the_same_directly_and_through_the_device() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    for (sender, ingest) in FAMILIES {
        for v4 in [true, false] {
            let frames = frames(sender, ingest);
            let trial = Trial::new(&rig, one(&rig, ingest, v4));
            let bytes = wire_bytes(payloads(&frames));
            trial.await_way(DIRECTLY);
            let before = transmitted(&rig.relay, "out0");
            let direct = trial.relay(&capture, &frames);
            let sent = transmitted(&rig.relay, "out0") - before;
            assert!(sent < bytes / 2, "out0 has sent {sent} of {bytes}");
            rig.relay.tc("qdisc add dev out0 root pfifo");
            trial.await_way("pfifo");
            let before = transmitted(&rig.relay, "out0");
            let through = trial.relay(&capture, &frames);
            await_transmitted(&rig.relay, "out0", before + bytes);
            assert_eq!(through, direct);
            rig.relay.tc("qdisc del dev out0 root");
            trial.await_way(DIRECTLY);
            let counters = trial.running.stop();
            let counters = stream(&counters);
            assert_identities(counters);
            let sent = 2 * frames.len() as u64;
            assert_eq!(counters.subscribers[&100].delivered.packets, sent);
        }
    }
    assert_eq!(capture.rest(), []);
}

#[test]
fn programs_exchange_datagrams_directly() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    for (sender, ingest) in FAMILIES {
        for v4 in [true, false] {
            let relayed = one(&rig, ingest, v4);
            let to = relayed.subscribers[0].destination;
            let receiver = rig.client.listen(to);
            let socket = rig.sender.run(|| UdpSocket::bind(sender).unwrap());
            let trial = Trial::new(&rig, relayed);
            trial.await_way(DIRECTLY);
            // Their checksums are partial: the sender's stack leaves them to the device.
            let sizes = (1..=1401).step_by(50);
            let before = transmitted(&rig.relay, "out0");
            for size in sizes.clone() {
                socket.send_to(&vec![0x5a; size], ingest).unwrap();
                let mut buffer = [0; 2048];
                let length = receiver.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..length], vec![0x5a; size]);
                std::thread::sleep(PAUSE);
            }
            let (sent, bytes) = (transmitted(&rig.relay, "out0") - before, wire_bytes(sizes));
            assert!(sent < bytes / 2, "out0 has sent {sent} of {bytes}");
        }
    }
}

/// A program that writes `MARK` into every frame and lets it go on.
fn marker(kind: libbpf_sys::bpf_prog_type) -> OwnedFd {
    let xdp = kind == libbpf_sys::BPF_PROG_TYPE_XDP;
    // data and data_end of struct xdp_md, of struct __sk_buff.
    let (data, end, goes_on) = if xdp { (0, 4, 2) } else { (76, 80, -1) };
    let code = [
        // r2 = data; r3 = data_end; r4 = r2 + 14; if r4 > r3 leave; *(u8 *)(r2 + 6) = MARK
        instruction(0x61, 2, 1, data, 0),
        instruction(0x61, 3, 1, end, 0),
        instruction(0xbf, 4, 2, 0, 0),
        instruction(0x07, 4, 0, 0, 14),
        instruction(0x2d, 4, 3, 1, 0),
        instruction(0x72, 2, 0, 6, i32::from(MARK)),
        // return XDP_PASS or TC_ACT_UNSPEC
        instruction(0xb7, 0, 0, 0, goes_on),
        instruction(0x95, 0, 0, 0, 0),
    ];
    // SAFETY: the name and the licence are C strings, the code is as long as said.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"marker".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            code.as_ptr(),
            code.len() as u64,
            std::ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "load: {}", std::io::Error::from_raw_os_error(-fd));
    // SAFETY: the descriptor was just made.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn instruction(code: u8, to: u8, from: u8, off: i16, imm: i32) -> libbpf_sys::bpf_insn {
    let mut instruction = libbpf_sys::bpf_insn {
        code,
        off,
        imm,
        ..Default::default()
    };
    instruction.set_dst_reg(to);
    instruction.set_src_reg(from);
    instruction
}

/// Attaches something before a relay starts and while it runs, and looks whether it sees frames.
fn sees_every_frame(attach: impl Fn(&Rig) -> Attachment, words: &str) {
    let rig = Rig::new();
    let capture = rig.capture();
    let frame = Frame::new(SENDER, INGEST, 100);
    let marked =
        |trial: &Trial<'_>| trial.relay(&capture, std::slice::from_ref(&frame))[0].macs[6] == MARK;

    let attached = attach(&rig);
    let trial = Trial::new(&rig, one(&rig, INGEST, true));
    trial.await_way(words);
    assert!(marked(&trial), "attached before");
    drop(attached);
    trial.await_way(DIRECTLY);
    assert!(!marked(&trial), "detached");
    let attached = attach(&rig);
    trial.await_way(words);
    assert!(marked(&trial), "attached while it runs");
    drop(attached);
    let counters = trial.running.stop();
    assert_eq!(
        stream(&counters).subscribers[&100].delivered.packets,
        3,
        "however they went"
    );
}

#[test]
fn an_xdp_program_at_the_other_end_sees_every_frame() {
    if !sys::require::root() {
        return;
    }
    let attach = |rig: &Rig| {
        let index = rig.client.index("rx0");
        let program = marker(libbpf_sys::BPF_PROG_TYPE_XDP);
        rig.client
            .run(|| attach::xdp(program.as_fd(), index, XdpMode::Native).unwrap())
    };
    sees_every_frame(attach, "XDP program");
}

#[test]
fn a_tc_program_on_the_device_sees_every_frame() {
    if !sys::require::root() {
        return;
    }
    let mut ways = vec![TcVia::Clsact];
    if attach::tc_via() == TcVia::Tcx {
        ways.push(TcVia::Tcx);
    }
    for via in ways {
        let attach = |rig: &Rig| {
            let program = marker(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS);
            let attach =
                || attach::tc(program.as_fd(), rig.out[0], Direction::Egress, via).unwrap();
            rig.relay.run(attach)
        };
        sees_every_frame(attach, "tc egress");
    }
}

#[test]
fn what_is_put_in_the_way_is_honoured() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let trial = Trial::new(&rig, one(&rig, INGEST, true));
    trial.await_way(DIRECTLY);
    let index = rig.client.index("rx0");
    let change = |spec: &LinkSpec<'_>| rig.client.netlink().set_link(index, spec).unwrap();
    change(&LinkSpec::unnamed().mtu(1400));
    trial.await_way("smaller MTU");
    change(&LinkSpec::unnamed().mtu(1500));
    trial.await_way(DIRECTLY);
    change(&LinkSpec::unnamed().mac(mac(99)));
    trial.await_way("not for the address");
    change(&LinkSpec::unnamed().mac(mac(5)));
    trial.await_way(DIRECTLY);
    change(&LinkSpec::unnamed().down());
    trial.await_way("is down");
    change(&LinkSpec::unnamed().up());
    trial.await_way(DIRECTLY);
    let checksums = |on| {
        rig.relay.run(|| {
            let device = sys::ethtool::Ethtool::open("out0").unwrap();
            device
                .set_features(&[("tx-checksum-ip-generic", on)])
                .unwrap();
        });
    };
    checksums(false);
    trial.await_way("makes checksums");
    checksums(true);
    trial.await_way(DIRECTLY);
    let listener = rig.relay.run(packet_socket);
    trial.await_way("packet socket");
    drop(listener);
    trial.await_way(DIRECTLY);
    let chain = "chain netdev t c { type filter hook egress device out0 priority 0; }";
    let nft = |rules: &str| rig.relay.run(|| Command::new("nft").arg(rules).status());
    if nft(&format!("add table netdev t; add {chain}")).is_ok_and(|done| done.success()) {
        trial.await_way("nftables");
        nft("delete table netdev t").unwrap();
        trial.await_way(DIRECTLY);
    }
}

#[test]
fn a_fixed_ttl_goes_through_the_device() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let capture = rig.capture();
    let mut relayed = one(&rig, INGEST, true);
    relayed.subscribers[0].ttl = Some(9);
    let trial = Trial::new(&rig, relayed);
    trial.await_way("fixed TTL");
    let frames = vec![Frame::new(SENDER, INGEST, 100); 16];
    let before = transmitted(&rig.relay, "out0");
    let arrived = trial.relay(&capture, &frames);
    assert!(arrived.iter().all(|arrived| arrived.ttl == 9));
    let bytes = wire_bytes(payloads(&frames));
    await_transmitted(&rig.relay, "out0", before + bytes);
}

#[test]
fn another_end_in_the_same_namespace_is_reached_through_the_device() {
    if !sys::require::root() {
        return;
    }
    let rig = Rig::new();
    let (near, far) = (mac(50), mac(51));
    rig.relay
        .netlink()
        .add_veth(
            &LinkSpec::new("near").mac(near).up(),
            &LinkSpec::new("far").mac(far),
        )
        .unwrap();
    let index = rig.relay.index("far");
    let up = LinkSpec::unnamed().up();
    rig.relay.netlink().set_link(index, &up).unwrap();
    let mut relayed = one(&rig, INGEST, true);
    if let NextHop::Ready {
        ifindex,
        source_mac,
        destination_mac,
        ..
    } = &mut relayed.subscribers[0].next_hop
    {
        *ifindex = rig.relay.index("near");
        (*source_mac, *destination_mac) = (near, far);
    }
    let trial = Trial::new(&rig, relayed);
    trial.await_way("another network namespace");
    let before = transmitted(&rig.relay, "near");
    for _ in 0..16 {
        rig.send(&Frame::new(SENDER, INGEST, 100));
    }
    await_transmitted(&rig.relay, "near", before + wire_bytes([100; 16]));
}
