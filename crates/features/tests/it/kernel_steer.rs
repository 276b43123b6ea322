//! Both directions of a flow on one CPU, wherever they come in: the rows of a capture, nothing lost
//! without being counted, and nothing taken from the stack.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use features::Options;
use features::flow::Flow;
use features::kernel::{Account, Clock, FlowPlane, Settings, Verdict};
use netdev::XdpMode;
use packet::build;

use crate::kernel::frames::{at, conversation};
use crate::kernel::wire::Wire;
use crate::kernel::{assert_same_but_times, assert_same_rows, expected, pin, run_live};

/// Two CPUs; none where a test that needs them cannot run.
fn cpus() -> Option<[usize; 2]> {
    if !sys::require::root() {
        return None;
    }
    let cpus = sys::sched::allowed_cpus().unwrap();
    let Some(&[one, other]) = cpus.first_chunk() else {
        sys::require::skip(sys::require::Class::Hardware, "one CPU");
        return None;
    };
    Some([one, other])
}

fn settings(cpus: [usize; 2]) -> Settings {
    let mut options = Options::default();
    // No time ends anything: some of these frames are sent at other times.
    options.timers.idle_ns = 1 << 60;
    options.timers.active_ns = 1 << 60;
    options.timers.linger_ns = None;
    let gaps = &mut options.timers.gaps;
    (gaps.active_ns, gaps.subflow_ns, gaps.bulk_ns) = (1 << 60, 1 << 60, 1 << 60);
    Settings {
        options,
        verdict: Verdict::Tap,
        flows_per_cpu: 4096,
        steer: cpus.map(|cpu| u32::try_from(cpu).unwrap()).to_vec(),
        ..Settings::default()
    }
}

/// Which of two directions a frame of a conversation has: its source's last octet, behind a tag.
fn direction(frame: &[u8]) -> usize {
    usize::from(frame[33] == 2)
}

/// Waits until so many have arrived.
fn wait(plane: &FlowPlane, arrived: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while plane.account().unwrap().arrived < arrived {
        assert!(Instant::now() < deadline, "{:?}", plane.account());
        thread::yield_now();
    }
}

fn finish(plane: &mut FlowPlane) -> (Vec<Flow>, Account) {
    let mut flows = Vec::new();
    plane.finish(&mut |flow| flows.push(*flow)).unwrap();
    (flows, plane.account().unwrap())
}

#[test]
fn directions_on_different_cpus_make_the_rows_of_a_capture() {
    let Some(cpus) = cpus() else { return };
    let settings = Settings {
        clock: Clock::Metadata,
        ..settings(cpus)
    };
    let frames = conversation(5, 80);
    let mut plane = FlowPlane::load(&settings).unwrap();
    for (sent, captured) in (1..).zip(&frames) {
        sys::sched::pin(cpus[direction(&captured.frame)]).unwrap();
        run_live(plane.program(), captured, 1);
        wait(&plane, sent);
    }
    let (found, account) = finish(&mut plane);
    assert_eq!((account.lost(), plane.merged()), (0, 0), "{account:?}");
    let mut expected = expected(&settings.options, &frames);
    expected
        .iter_mut()
        .for_each(|flow| flow.end = features::flow::End::Stopped);
    assert!(expected.iter().any(|flow| flow.gaps.count > 0));
    assert_same_rows("steered", expected, found);
}

#[test]
fn directions_on_different_queues_meet() {
    let Some(cpus) = cpus() else { return };
    if netdev::attach::tc_via() == netdev::attach::TcVia::Clsact {
        let why = "before Linux 6.6 a frame can stay in its CPU's queue until the next one comes";
        return sys::require::skip(sys::require::Class::Hardware, why);
    }
    let mut frames = conversation(7, 400);
    for (time, frame) in (1..).zip(&mut frames) {
        frame.timestamp_ns = time * 1000;
    }
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let wire = Wire::new();
        wire.queue_for_each_cpu(&cpus);
        let settings = settings(cpus);
        let mut plane = FlowPlane::load(&settings).unwrap();
        wire.near(|| plane.attach(wire.ifindex, mode)).unwrap();
        let sender = wire.sender();
        let mut before = 0;
        for (sent, captured) in (0..).zip(&frames) {
            let direction = direction(&captured.frame);
            if direction != before {
                // What another CPU still has would be overtaken.
                wait(&plane, sent);
                before = direction;
            }
            sys::sched::pin(cpus[direction]).unwrap();
            assert!(sender.send(&captured.frame));
        }
        wait(&plane, frames.len() as u64);
        let (found, account) = finish(&mut plane);
        assert_eq!((account.lost(), plane.merged()), (0, 0), "{account:?}");
        assert_eq!(
            account.changed_queue, 0,
            "each direction keeps to its queue"
        );
        assert_same_but_times(expected(&settings.options, &frames), found);
    }
}

#[test]
fn a_direction_that_changes_its_queue_is_noticed() {
    let Some(cpus) = cpus() else { return };
    let wire = Wire::new();
    wire.queue_for_each_cpu(&cpus);
    let mut plane = FlowPlane::load(&settings(cpus)).unwrap();
    wire.near(|| plane.attach(wire.ifindex, XdpMode::Native))
        .unwrap();
    let sender = wire.sender();
    let frame = build::udp(at("192.0.2.1:7"), at("192.0.2.2:9")).frame();
    for sent in 0..6_u64 {
        sys::sched::pin(cpus[usize::try_from(sent / 2 % 2).unwrap()]).unwrap();
        assert!(sender.send(&frame));
        wait(&plane, sent + 1);
    }
    let (found, account) = finish(&mut plane);
    assert_eq!((found.len(), account.changed_queue), (1, 2));
}

#[test]
fn frames_for_which_a_queue_has_no_room_are_counted() {
    let Some(cpus) = cpus() else { return };
    let settings = Settings {
        clock: Clock::Metadata,
        steer: vec![u32::try_from(cpus[0]).unwrap()],
        steer_waiting: 64,
        ..settings(cpus)
    };
    let mut plane = FlowPlane::load(&settings).unwrap();
    // In the kernel's batches of 256 frames nobody else runs on the CPU that has to count.
    sys::sched::pin(cpus[0]).unwrap();
    run_live(plane.program(), &conversation(1, 1)[0], 4096);
    let deadline = Instant::now() + Duration::from_secs(20);
    let told = loop {
        let account = plane.account().unwrap();
        if account.arrived + account.lost_queue_full == 4096 {
            break account;
        }
        assert!(Instant::now() < deadline, "{account:?}");
        thread::yield_now();
    };
    let (found, account) = finish(&mut plane);
    assert!(account.lost_queue_full > 0, "{account:?}");
    assert_eq!(
        told.lost_queue_full, account.lost_queue_full,
        "told while it ran"
    );
    let packets: u64 = found.iter().map(Flow::packets).sum();
    assert_eq!(account.packets, 4096);
    assert_eq!(packets + account.lost(), account.packets, "{account:?}");
}

#[test]
fn steered_frames_reach_the_stack() {
    let Some(cpus) = cpus() else { return };
    let wire = Wire::new();
    wire.address("192.0.2.9".parse().unwrap());
    let settings = Settings {
        verdict: Verdict::Inline,
        ..settings(cpus)
    };
    let mut plane = FlowPlane::load(&settings).unwrap();
    let socket = wire.near(|| {
        plane.attach(wire.ifindex, XdpMode::Native).unwrap();
        UdpSocket::bind("192.0.2.9:9").unwrap()
    });
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    pin();
    let broadcast = [0xff; 6];
    let source = [2, 0, 0, 0, 0, 1];
    let frame = build::udp(at("192.0.2.1:7"), at("192.0.2.9:9"))
        .macs(source, broadcast)
        .payload(*b"inline")
        .frame();
    assert!(wire.sender().send(&frame));
    let mut room = [0; 100];
    let length = socket.recv(&mut room).unwrap();
    assert_eq!(&room[..length], b"inline");
    let (found, _) = finish(&mut plane);
    assert_eq!(found.iter().map(Flow::packets).sum::<u64>(), 1);
}
