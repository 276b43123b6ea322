//! AF_XDP over a veth pair in a namespace of its own: `left` sends, `right` receives or reflects.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Xdp, XdpFlags, libbpf_sys};
use netdev::{LinkSpec, Netlink};
use sys::mmap::Pages;
use xsk::{Bind, Error, Frame, Kick, Mode, Outcome, Pump, Socket, Umem, Wait};

const QUEUES: u32 = 2;

/// Runs `test` on a thread in a fresh network namespace, which disappears with the thread.
fn in_namespace(test: impl FnOnce(&Link) + Send + 'static) {
    if !sys::require::root() {
        return;
    }
    thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        // A router solicitation among the packets would take one of the frames that they need.
        fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        test(&Link::new());
    })
    .join()
    .unwrap();
}

/// Two ends of a veth pair with two queues each.
struct Link {
    left: u32,
    right: u32,
}

impl Link {
    fn new() -> Self {
        let mut netlink = Netlink::new().unwrap();
        let spec = |name| LinkSpec::new(name).queues(QUEUES);
        netlink.add_veth(&spec("left"), &spec("right")).unwrap();
        let [left, right] = ["left", "right"].map(|name| netlink.link_by_name(name).unwrap().index);
        for index in [left, right] {
            netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
        }
        Self { left, right }
    }
}

/// An XDP program that hands each queue's packets to the socket in its map, else up.
struct ToSockets {
    map: MapHandle,
    _program: OwnedFd,
}

impl ToSockets {
    fn attach(ifindex: u32) -> Self {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let map =
            MapHandle::create(MapType::Xskmap, Some("sockets"), 4, 4, QUEUES, &options).unwrap();
        let program = load_redirect(map.as_fd());
        Xdp::new(program.as_fd())
            .attach(i32::try_from(ifindex).unwrap(), XdpFlags::DRV_MODE)
            .unwrap();
        Self {
            map,
            _program: program,
        }
    }

    fn insert(&self, queue: u32, socket: impl AsFd) {
        let fd = socket.as_fd().as_raw_fd();
        self.map
            .update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .unwrap();
    }
}

/// `return bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS);`
fn load_redirect(map: BorrowedFd<'_>) -> OwnedFd {
    const RX_QUEUE_INDEX: i16 = 16;
    let instruction = |code, registers, off, imm| -> u64 {
        u64::from_le_bytes({
            let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
            bytes[2..4].copy_from_slice(&i16::to_le_bytes(off));
            bytes[4..8].copy_from_slice(&i32::to_le_bytes(imm));
            bytes
        })
    };
    let program = [
        instruction(0x61, 0x12, RX_QUEUE_INDEX, 0),
        instruction(0x18, 0x11, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0),
        instruction(0xb7, 0x03, 0, 2),
        instruction(0x85, 0, 0, 51),
        instruction(0x95, 0, 0, 0),
    ];
    let (name, license) = (
        CString::new("to_sockets").unwrap(),
        CString::new("Dual BSD/GPL").unwrap(),
    );
    // SAFETY: an instruction is eight bytes; all pointers outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            name.as_ptr(),
            license.as_ptr(),
            program.as_ptr().cast(),
            program.len() as u64,
            ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "the redirect program does not load: {fd}");
    // SAFETY: the call above opened it, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn memory(frames: u32) -> (Umem, Vec<Frame>) {
    Umem::new(frames, 2048, 0, Pages::Ordinary).unwrap()
}

fn bind(umem: &Umem, ifindex: u32, queue: u32) -> Socket {
    Socket::bind(umem, &Bind::new(ifindex, queue, Mode::Copy)).unwrap()
}

/// An Ethernet frame of an experimental type that carries `number`.
fn write_packet(umem: &Umem, frame: &mut Frame, number: u64) {
    assert!(frame.set(0, 60));
    let bytes = umem.bytes_mut(frame);
    bytes.fill(0);
    bytes[0..6].fill(0xff);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
}

/// The number in a packet of ours.
fn number(packet: &[u8]) -> Option<u64> {
    let ours = packet.get(12..14)? == [0x88, 0xb5];
    let number = packet.get(14..22)?.try_into().ok()?;
    ours.then(|| u64::from_be_bytes(number))
}

/// Sends packets numbered from `first`, all of `frames`, and waits until they are transmitted.
fn send_all(umem: &Umem, socket: &mut Socket, frames: &mut Vec<Frame>, first: u64) {
    let wanted = frames.len();
    for (number, frame) in (first..).zip(frames.iter_mut()) {
        write_packet(umem, frame, number);
    }
    let mut done = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while done.len() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} sent", done.len());
        socket.send(frames);
        while socket.kick().unwrap() != Kick::Done {
            socket.complete(&mut done);
            assert!(Instant::now() < deadline, "the device stays busy");
        }
        socket.complete(&mut done);
    }
    *frames = done;
}

/// Receives until `wanted` packets of ours have come.
fn receive_numbers(umem: &Umem, socket: &mut Socket, wanted: usize) -> Vec<u64> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut numbers = Vec::new();
    let mut frames = Vec::new();
    while numbers.len() < wanted {
        assert!(Instant::now() < deadline, "{numbers:?} of {wanted}");
        socket.wait(Duration::from_millis(100)).unwrap();
        socket.receive(&mut frames, 64);
        numbers.extend(frames.iter().filter_map(|f| number(umem.bytes(f))));
        socket.fill(&mut frames);
    }
    numbers
}

#[test]
fn packets_are_received_reflected_and_received_again() {
    in_namespace(|link| {
        let (near, mut near_frames) = memory(256);
        let (far, mut far_frames) = memory(256);
        let (to_near, to_far) = (ToSockets::attach(link.left), ToSockets::attach(link.right));
        let mut sender = bind(&near, link.left, 0);
        let mut reflector = bind(&far, link.right, 0);
        to_near.insert(0, &sender);
        to_far.insert(0, &reflector);
        reflector.fill(&mut far_frames);
        sender.fill(&mut near_frames.split_off(128));

        send_all(&near, &mut sender, &mut near_frames, 0);
        let mut reflected = 0;
        let mut frames = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while reflected < 128 {
            assert!(Instant::now() < deadline, "{reflected} reflected");
            reflector.receive(&mut frames, 32);
            frames.retain_mut(|frame| {
                let number = number(far.bytes(frame));
                if let Some(number) = number {
                    far.bytes_mut(frame)[14..22].copy_from_slice(&(number + 1000).to_be_bytes());
                }
                number.is_some()
            });
            reflected += reflector.send(&mut frames);
            reflector.kick().unwrap();
            reflector.complete(&mut far_frames);
        }
        while reflector.unsent() > 0 {
            reflector.kick().unwrap();
        }
        let back = receive_numbers(&near, &mut sender, 128);
        assert_eq!(back, (1000..1128).collect::<Vec<_>>());
    });
}

#[test]
fn each_queue_has_its_socket_in_shared_memory() {
    in_namespace(|link| {
        let (near, near_frames) = memory(128);
        let (far, mut far_frames) = memory(512);
        let to_far = ToSockets::attach(link.right);
        let mut near_frames = near_frames.into_iter();
        let mut ends: Vec<_> = (0..QUEUES)
            .map(|queue| (bind(&near, link.left, queue), bind(&far, link.right, queue)))
            .collect();
        for (queue, (sender, receiver)) in (0..).zip(&mut ends) {
            receiver.fill(&mut far_frames.split_off(far_frames.len() - 200));
            to_far.insert(queue, receiver);
            let mut frames = near_frames.by_ref().take(50).collect();
            send_all(&near, sender, &mut frames, u64::from(queue) * 100);
        }
        for (first, (_, receiver)) in [0, 100].into_iter().zip(&mut ends) {
            let numbers = receive_numbers(&far, receiver, 50);
            assert_eq!(numbers, (first..first + 50).collect::<Vec<_>>());
        }
    });
}

#[test]
fn one_memory_serves_two_devices() {
    in_namespace(|link| {
        let (umem, mut frames) = memory(256);
        let to_right = ToSockets::attach(link.right);
        let mut receiver = bind(&umem, link.right, 0);
        let mut sender = bind(&umem, link.left, 0);
        to_right.insert(0, &receiver);
        receiver.fill(&mut frames.split_off(128));
        send_all(&umem, &mut sender, &mut frames, 7);
        let numbers = receive_numbers(&umem, &mut receiver, 128);
        assert_eq!(numbers, (7..135).collect::<Vec<_>>());
    });
}

#[test]
fn packets_without_frames_are_counted_by_the_kernel() {
    in_namespace(|link| {
        let (near, mut near_frames) = memory(64);
        let (far, mut far_frames) = memory(64);
        let to_far = ToSockets::attach(link.right);
        let mut receiver = bind(&far, link.right, 0);
        to_far.insert(0, &receiver);
        // The kernel takes buffers from the fill ring in batches, so all but these must be absent.
        receiver.fill(&mut far_frames.split_off(48));
        let mut sender = bind(&near, link.left, 0);
        send_all(&near, &mut sender, &mut near_frames, 0);

        // Veth may still be delivering: the sum must reach 64 and no more.
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut received = Vec::new();
        loop {
            receiver.receive(&mut received, 64);
            let ours = received.iter().filter(|f| number(far.bytes(f)).is_some());
            let (ours, lost) = (ours.count(), receiver.statistics().unwrap().fill_empty);
            if ours <= 16 && ours as u64 + lost >= 64 {
                assert_eq!(received.len(), 16);
                break;
            }
            assert!(Instant::now() < deadline, "{ours} received, {lost} lost");
            thread::yield_now();
        }
    });
}

#[test]
fn a_full_transmit_ring_takes_the_rest_later() {
    in_namespace(|link| {
        let (umem, mut frames) = memory(100);
        let small = Bind {
            transmit: 16,
            ..Bind::new(link.left, 0, Mode::Copy)
        };
        let mut socket = Socket::bind(&umem, &small).unwrap();
        for frame in &mut frames {
            write_packet(&umem, frame, 0);
        }
        assert_eq!(socket.send(&mut frames), 16);
        assert_eq!((frames.len(), socket.unsent()), (84, 16));
        send_all(&umem, &mut socket, &mut frames, 0);
        assert_eq!(socket.unsent(), 0);
    });
}

/// A pump that sends by `left` (port 0) and receives by `right` (port 1).
fn pump(link: &Link, to_right: &ToSockets) -> Pump<u64> {
    let mut pump = Pump::new(256, 2048).unwrap();
    pump.open(Bind::new(link.left, 0, Mode::Copy)).unwrap();
    let receiver = pump.open(Bind::new(link.right, 0, Mode::Copy)).unwrap();
    pump.set_quota(receiver, 128);
    to_right.insert(0, &pump.ports[receiver]);
    pump
}

/// Stages so many packets, numbered and tagged from `first`.
fn stage(pump: &mut Pump<u64>, first: u64, packets: u64) {
    for number in first..first + packets {
        let mut frame = pump.free.pop().unwrap();
        write_packet(&pump.umem, &mut frame, number);
        pump.ports[0].stage(frame, number);
    }
}

#[test]
fn a_pump_reports_each_frame_sent_and_loses_none() {
    in_namespace(|link| {
        let to_right = ToSockets::attach(link.right);
        let mut pump = pump(link, &to_right);
        assert_eq!(pump.free.len(), 128);
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(10);
        for first in [0, 100] {
            stage(&mut pump, first, 100);
            pump.flush(|number, outcome| {
                assert_eq!(outcome, Outcome::Sent);
                sent.push(number);
            });
            while received.len() < usize::try_from(first).unwrap() + 100 {
                assert!(Instant::now() < deadline, "{} received", received.len());
                assert_eq!(pump.wait(Duration::from_millis(100)).unwrap(), Wait::Over);
                pump.receive_each(64, |pump, frame| {
                    received.extend(number(pump.umem.bytes(&frame)));
                    pump.free.push(frame);
                });
            }
        }
        assert_eq!(sent, (0..200).collect::<Vec<_>>());
        assert_eq!(received, sent);
        assert!(!pump.is_waiting());
        while pump.free.len() < 128 {
            assert!(Instant::now() < deadline, "{} frames", pump.free.len());
            pump.flush(|_, _| panic!("nothing is staged"));
        }
        assert_eq!((pump.free.len(), pump.dropped()), (128, 0));
    });
}

#[test]
fn offered_frames_wait_for_room_in_the_ring() {
    in_namespace(|link| {
        let mut pump: Pump<u64> = Pump::new(256, 2048).unwrap();
        let small = Bind {
            transmit: 16,
            ..Bind::new(link.left, 0, Mode::Copy)
        };
        pump.open(small).unwrap();
        stage(&mut pump, 0, 100);
        let mut sent = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while pump.is_waiting() {
            assert!(Instant::now() < deadline, "{} sent", sent.len());
            let before = sent.len();
            let offered = pump.offer(0, |number, outcome| {
                assert_eq!(outcome, Outcome::Sent);
                sent.push(number);
            });
            offered.unwrap();
            assert!(sent.len() - before <= 16, "more than the ring has room for");
        }
        assert_eq!(sent, (0..100).collect::<Vec<_>>());
        while pump.free.len() < 256 {
            assert!(Instant::now() < deadline, "{} frames", pump.free.len());
            pump.reclaim();
        }
    });
}

#[test]
fn offered_frames_stay_queued_at_a_device_that_is_down() {
    in_namespace(|link| {
        let to_right = ToSockets::attach(link.right);
        let mut pump = pump(link, &to_right);
        let mut netlink = Netlink::new().unwrap();
        netlink
            .set_link(link.left, &LinkSpec::unnamed().down())
            .unwrap();
        stage(&mut pump, 0, 10);
        assert!(pump.offer(0, |_, _| panic!("not sent")).is_err());
        assert!(!pump.is_waiting(), "asking again is of no use");
        let mut lost = Vec::new();
        pump.give_up(|number, _| lost.push(number));
        assert_eq!(lost, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_port_that_is_closed_returns_its_frames() {
    const FRAMES: u32 = 512;
    in_namespace(|link| {
        let mut pump = Pump::<u32>::new(FRAMES, 2048).unwrap();
        let keeps = pump.open(Bind::new(link.right, 0, Mode::Copy)).unwrap();
        pump.set_quota(keeps, 100);
        for round in 0..5 {
            let port = pump.open(Bind::new(link.left, 0, Mode::Copy)).unwrap();
            pump.set_quota(port, 200);
            for number in 0..10 {
                let mut frame = pump.free.pop().unwrap();
                assert!(frame.set(256, 60));
                pump.ports[port].stage(frame, number);
            }
            let mut lost = 0;
            pump.close(port, |_, outcome| {
                lost += u32::from(outcome == Outcome::Lost);
            });
            assert_eq!(lost, 10, "round {round}");
            assert_eq!((pump.free.len(), pump.lost_frames()), (412, 0));
            assert_eq!(pump.ports.len(), 1);
        }
        // The device goes with frames in its rings.
        let port = pump.open(Bind::new(link.left, 1, Mode::Copy)).unwrap();
        pump.set_quota(port, 200);
        Netlink::new().unwrap().delete_link(link.left).unwrap();
        pump.close(port, |_, _| {});
        pump.close(keeps, |_, _| {});
        assert_eq!((pump.free.len(), pump.lost_frames()), (512, 0));
    });
}

#[test]
fn a_pump_reports_frames_lost_at_a_device_that_is_down() {
    in_namespace(|link| {
        let to_right = ToSockets::attach(link.right);
        let mut pump = pump(link, &to_right);
        let mut netlink = Netlink::new().unwrap();
        netlink
            .set_link(link.left, &LinkSpec::unnamed().down())
            .unwrap();
        let mut outcomes = Vec::new();
        stage(&mut pump, 0, 10);
        pump.flush(|number, outcome| outcomes.push((number, outcome)));
        stage(&mut pump, 10, 10);
        pump.flush(|number, outcome| outcomes.push((number, outcome)));
        assert!(!pump.is_waiting(), "asking again is of no use");
        pump.give_up(|number, outcome| outcomes.push((number, outcome)));
        outcomes.sort_by_key(|(number, _)| *number);
        assert_eq!(
            outcomes,
            (0..20)
                .map(|number| (number, Outcome::Lost))
                .collect::<Vec<_>>()
        );
    });
}

#[test]
fn what_cannot_be_bound_is_told_apart() {
    in_namespace(|link| {
        let (umem, _frames) = memory(16);
        let (other, _frames) = memory(16);
        let copy = |umem, ifindex, queue| {
            Socket::bind(umem, &Bind::new(ifindex, queue, Mode::Copy)).unwrap_err()
        };
        assert!(matches!(copy(&umem, link.left, 7), Error::NoQueue { .. }));
        assert!(matches!(copy(&umem, 999, 0), Error::NoInterface(999)));
        let zero = Bind::new(link.left, 0, Mode::ZeroCopy);
        let zero = Socket::bind(&umem, &zero).unwrap_err();
        assert!(matches!(zero, Error::NoZeroCopy(_)), "{zero}");

        let held = bind(&umem, link.left, 0);
        assert!(matches!(copy(&umem, link.left, 0), Error::Taken { .. }));
        assert!(matches!(copy(&other, link.left, 0), Error::Taken { .. }));
        assert!(matches!(copy(&umem, link.left, 7), Error::NoQueue { .. }));
        drop(held);
        bind(&umem, link.right, 1);
        let odd = Bind {
            fill: 100,
            ..Bind::new(link.left, 0, Mode::Copy)
        };
        let odd = Socket::bind(&umem, &odd).unwrap_err();
        assert!(matches!(odd, Error::RingSize(100)));
    });
}
