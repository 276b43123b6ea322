//! The kernel's flows of traffic that is there: on a device, on several CPUs, and during evictions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use features::Options;
use features::flow::{End, Flow, Table};
use features::kernel::{Clock, FlowPlane, PacketPlane, Settings, Verdict};
use netdev::XdpMode;
use packet::build;
use packet::pcap::OwnedFrame;

use crate::kernel::frames::{at, conversation};
use crate::kernel::wire::Wire;
use crate::kernel::{assert_same_but_times, expected, pin, run};

/// No time ends anything: what is compared was sent at other times.
fn timeless() -> Options {
    let mut options = Options::default();
    let far = 1 << 60;
    options.timers.idle_ns = far;
    options.timers.active_ns = far;
    options.timers.linger_ns = None;
    let gaps = &mut options.timers.gaps;
    (gaps.active_ns, gaps.subflow_ns, gaps.bulk_ns) = (1 << 60, 1 << 60, 1 << 60);
    options
}

fn live(options: Options) -> Settings {
    Settings {
        options,
        verdict: Verdict::Tap,
        flows_per_cpu: 4096,
        ..Settings::default()
    }
}

/// Frames of a conversation in which time goes on evenly.
fn even(packets: usize) -> Vec<OwnedFrame> {
    let mut frames = conversation(5, packets);
    for (time, frame) in (1..).zip(&mut frames) {
        frame.timestamp_ns = time * 1000;
    }
    frames
}

/// Frames of one CPU come in as they were sent: else a flow's, told apart by their VLANs, take two
/// queues, of which the kernel may empty the second first.
fn in_order(wire: &Wire) {
    wire.queue_for_each_cpu(&sys::sched::allowed_cpus().unwrap());
}

/// Waits until something has been seen so often.
fn wait(mut seen: impl FnMut() -> u64, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while seen() < u64::try_from(wanted).unwrap() {
        assert!(Instant::now() < deadline, "{} of {wanted}", seen());
        thread::yield_now();
    }
}

#[test]
fn replayed_over_a_device_all_but_the_times_are_the_same() {
    if !sys::require::root() {
        return;
    }
    pin();
    let (frames, options) = (even(1500), timeless());
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let wire = Wire::new();
        in_order(&wire);
        let mut plane = FlowPlane::load(&live(options.clone())).unwrap();
        wire.near(|| plane.attach(wire.ifindex, mode)).unwrap();
        let sender = wire.sender();
        for frame in &frames {
            assert!(sender.send(&frame.frame));
        }
        wait(|| plane.account().unwrap().packets, frames.len());
        let mut found = Vec::new();
        plane.finish(&mut |flow| found.push(*flow)).unwrap();
        assert_same_but_times(expected(&options, &frames), found);
    }
}

#[test]
fn recorded_over_a_device_all_but_the_times_are_the_same() {
    if !sys::require::root() {
        return;
    }
    pin();
    let (frames, options) = (even(1500), timeless());
    let wire = Wire::new();
    in_order(&wire);
    let (mut plane, mut rings) = PacketPlane::load(&live(options.clone())).unwrap();
    wire.near(|| plane.attach(wire.ifindex, XdpMode::Native))
        .unwrap();
    let sender = wire.sender();
    for frame in &frames {
        assert!(sender.send(&frame.frame));
    }
    wait(|| plane.account().unwrap().packets, frames.len());
    plane.detach().unwrap();
    let mut table = Table::new(options.timers, options.limits);
    let mut found = Vec::new();
    rings[0].collect(i64::MAX, |packet| {
        table.add(packet, &mut |flow| found.push(*flow));
    });
    table.drain(&mut |flow| found.push(*flow));
    assert_same_but_times(expected(&options, &frames), found);
}

#[test]
fn no_packet_is_lost_between_a_look_at_a_flow_and_its_eviction() {
    const PACKETS: usize = 60_000;
    if !sys::require::root() {
        return;
    }
    let wire = Wire::new();
    let mut settings = live(Options::default());
    settings.merge = false;
    let mut plane = FlowPlane::load(&settings).unwrap();
    wire.near(|| plane.attach(wire.ifindex, XdpMode::Native))
        .unwrap();
    let mut flows: Vec<Flow> = Vec::new();
    let sending = AtomicUsize::new(0);
    let cpus = sys::sched::allowed_cpus().unwrap();
    let evicted = thread::scope(|scope| {
        for (number, cpu) in cpus.iter().enumerate().take(2) {
            let (sender, sending) = (wire.sender(), &sending);
            sending.fetch_add(1, Ordering::Relaxed);
            scope.spawn(move || {
                sys::sched::pin(*cpu).unwrap();
                for packet in 0..PACKETS {
                    // Of three flows for each CPU.
                    let source = at(&format!("192.0.2.{}:{}", number + 1, packet % 3));
                    let frame = build::udp(source, at("192.0.2.9:9"))
                        .payload([0; 58])
                        .frame();
                    sender.send(&frame);
                }
                sending.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut evicted = 0;
        while sending.load(Ordering::Relaxed) > 0 {
            // Every flow is due by then.
            let swept = plane.sweep(i64::MAX, Duration::MAX, &mut |flow| flows.push(*flow));
            evicted += swept.unwrap().evicted;
        }
        evicted
    });
    plane.finish(&mut |flow| flows.push(*flow)).unwrap();
    let account = plane.account().unwrap();
    assert!(evicted > 10, "{evicted} evictions under traffic");
    assert_eq!(account.lost() + account.refused(), 0, "{account:?}");
    let packets: u64 = flows.iter().map(Flow::packets).sum();
    assert_eq!(packets, account.packets, "{account:?}");
    assert!(
        flows
            .iter()
            .all(|flow| flow.wire().sum == 100 * flow.packets())
    );
}

/// What a flow has in each of its rows, summed over its rows.
fn sums(flows: &[Flow]) -> BTreeMap<([u16; 2], u8), [u64; 4]> {
    let mut sums = BTreeMap::new();
    for flow in flows {
        let sum: &mut [u64; 4] = sums.entry((flow.key.ports, flow.key.protocol)).or_default();
        let values = [
            flow.forward.packets(),
            flow.backward.packets(),
            flow.wire().sum,
            flow.flag(2),
        ];
        sum.iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value);
    }
    sums
}

#[test]
fn directions_on_different_cpus_make_one_row() {
    if !sys::require::root() {
        return;
    }
    let cpus = sys::sched::allowed_cpus().unwrap();
    if cpus.len() < 2 {
        return sys::require::skip(sys::require::Class::Hardware, "one CPU");
    }
    let (frames, options) = (even(400), timeless());
    let settings = Settings {
        clock: Clock::Metadata,
        ..live(options.clone())
    };
    let mut plane = FlowPlane::load(&settings).unwrap();
    let mut found = Vec::new();
    for captured in &frames {
        // The source's last octet, behind a tag.
        sys::sched::pin(cpus[usize::from(captured.frame[33] == 2)]).unwrap();
        run(plane.program(), captured);
    }
    // Due on neither CPU.
    plane
        .sweep(0, Duration::MAX, &mut |flow| found.push(*flow))
        .unwrap();
    assert_eq!(found, []);
    plane
        .sweep(i64::MAX, Duration::MAX, &mut |flow| found.push(*flow))
        .unwrap();
    let expected = expected(&options, &frames);
    assert_eq!(found.len(), expected.len());
    assert!(plane.merged() > 0);
    assert!(found.iter().all(|flow| flow.end == End::Idle));
    assert_eq!(sums(&found), sums(&expected));
    for flow in &mut found {
        let whole = expected.iter().find(|whole| whole.key == flow.key).unwrap();
        assert_eq!((flow.id(), flow.initiator), (whole.id(), whole.initiator));
        assert_eq!(flow.steps, whole.steps);
        assert_eq!(
            (flow.first_ns, flow.last_ns),
            (whole.first_ns, whole.last_ns)
        );
        assert_eq!(flow.gaps.count, 0, "nobody knows");
        for (own, whole) in [
            (&mut flow.forward, whole.forward),
            (&mut flow.backward, whole.backward),
        ] {
            // No CPU has seen what interrupts a bulk.
            own.bulks = whole.bulks;
            assert_eq!(*own, whole);
        }
    }
}
