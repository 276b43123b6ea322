//! The kernel's flows against the extractor's, on the same frames.

use std::time::Duration;

use features::flow::{End, Flow, Gaps, Limits, Table, Timers};
use features::kernel::{Account, Clock, FlowPlane, Settings};
use features::{Extractor, Options, PacketReader};
use packet::build;
use packet::pcap::OwnedFrame;

use crate::kernel::frames::{at, conversation};
use crate::kernel::{Hook, assert_same_rows, captured, captures, frames, load, run, run_at_tc};

const SECOND: i64 = 1_000_000_000;

fn settings(options: Options) -> Settings {
    Settings {
        options,
        clock: Clock::Metadata,
        flows_per_cpu: 8192,
        ring_bytes: 1 << 24,
        ..Settings::default()
    }
}

/// The flows of these frames by userspace; none is swept out, so that the last of each key are
/// stopped.
fn expected(options: &Options, frames: &[OwnedFrame]) -> Vec<Flow> {
    let mut reader = PacketReader::new(options);
    let mut table = Table::new(options.timers, options.limits);
    let mut flows = Vec::new();
    let mut export = |flow: Box<Flow>| flows.push(*flow);
    for captured in frames {
        if let Some(packet) = reader.read(&captured.as_frame()) {
            table.add(&packet, &mut export);
        }
    }
    table.drain(&mut export);
    flows
}

/// The flows of these frames by the kernel, and that every frame is accounted for.
fn found(hook: Hook, options: &Options, frames: &[OwnedFrame]) -> Vec<Flow> {
    let mut plane = hook.load(&settings(options.clone()));
    let mut flows = Vec::new();
    for captured in frames {
        hook.run(plane.program(), captured);
        plane.collect(&mut |flow| flows.push(*flow)).unwrap();
    }
    let account = finish(plane, &mut flows);
    assert_eq!(account.lost(), 0, "{account:?}");
    flows
}

/// Exports the rest; every frame is in a row, refused or lost.
fn finish(mut plane: FlowPlane, flows: &mut Vec<Flow>) -> Account {
    let (account, open) = (plane.account().unwrap(), plane.open_packets().unwrap());
    plane.finish(&mut |flow| flows.push(*flow)).unwrap();
    assert_eq!(
        account.packets,
        account.exported + open + account.refused() + account.lost(),
        "{account:?}, {open} open"
    );
    let ended = flows.iter().filter(|flow| flow.end != End::Early);
    assert_eq!(
        ended.map(Flow::packets).sum::<u64>(),
        account.exported + open
    );
    account
}

#[test]
fn every_outside_capture_gives_the_same_rows() {
    if !sys::require::root() {
        return;
    }
    let Some(captures) = captures() else { return };
    let options = Options::default();
    for path in captures {
        for hook in [Hook::Xdp, Hook::Tc] {
            let name = format!("{hook:?}: {}", path.display());
            let mut frames = frames(&path);
            hook.fit(&mut frames);
            let (expected, found) = (expected(&options, &frames), found(hook, &options, &frames));
            assert_same_rows(&name, expected, found);
            let (extracted, swept) = (extracted(&options, &frames), swept(hook, &options, &frames));
            assert_same_rows(&name, extracted, swept);
        }
    }
}

/// The extractor's own rows. When its sweep comes decides whether the last flow of a key is stopped
/// or has ended before, so the reason is made the same: what is in the row is.
fn extracted(options: &Options, frames: &[OwnedFrame]) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut extractor = Extractor::new(options, |flow| flows.push(*flow));
    for captured in frames {
        extractor.frame(&captured.as_frame());
    }
    extractor.finish();
    timely(&mut flows);
    flows
}

/// The kernel's rows with sweeps as often as the extractor's, and a last one that takes out all.
fn swept(hook: Hook, options: &Options, frames: &[OwnedFrame]) -> Vec<Flow> {
    let mut plane = hook.load(&settings(options.clone()));
    let mut flows = Vec::new();
    let mut export = |flow: Box<Flow>| flows.push(*flow);
    for frames in frames.chunks(1024) {
        for captured in frames {
            hook.run(plane.program(), captured);
        }
        let horizon = frames.iter().map(|captured| captured.timestamp_ns).min();
        let horizon = horizon.unwrap();
        let swept = plane.sweep(horizon, Duration::MAX, &mut export).unwrap();
        assert!(swept.whole && swept.ring_full == 0);
    }
    plane.sweep(i64::MAX, Duration::MAX, &mut export).unwrap();
    assert_eq!(plane.open_packets().unwrap(), 0);
    finish(plane, &mut flows);
    timely(&mut flows);
    flows
}

fn timely(flows: &mut [Flow]) {
    for flow in flows {
        if matches!(flow.end, End::Idle | End::Closed) {
            flow.end = End::Stopped;
        }
    }
}

/// Every rule switched on, off, and far from its default.
fn all_options() -> Vec<Options> {
    let default = Options::default();
    let short = Timers {
        idle_ns: 3 * SECOND,
        active_ns: 10 * SECOND,
        linger_ns: Some(SECOND),
        gaps: Gaps {
            active_ns: 1_000_000_000,
            subflow_ns: 1000,
            bulk_ns: 500,
        },
    };
    let mut options = vec![default; 5];
    options[1].timers = short;
    options[2].timers.linger_ns = None;
    options[2].by_vlan = true;
    options[3].limits = Limits {
        steps: 3,
        early_packets: Some(5),
        ..Limits::default()
    };
    options[4].limits.steps = 0;
    options
}

#[test]
fn flows_begin_and_end_alike() {
    if !sys::require::root() {
        return;
    }
    for options in all_options() {
        for seed in 1..=u64::from(1 + sys::require::fuzz().min(4)) {
            let frames = conversation(seed, 2000);
            let expected = expected(&options, &frames);
            assert!(expected.len() > 20, "{} flows", expected.len());
            for hook in [Hook::Xdp, Hook::Tc] {
                let found = found(hook, &options, &frames);
                assert_same_rows(&format!("{hook:?}, {options:?}"), expected.clone(), found);
            }
        }
    }
}

#[test]
fn sweeps_take_out_what_is_due_and_nothing_else() {
    if !sys::require::root() {
        return;
    }
    let options = Options::default();
    for seed in 1..=3 {
        let frames = conversation(seed, 3000);
        let extracted = extracted(&options, &frames);
        for hook in [Hook::Xdp, Hook::Tc] {
            let swept = swept(hook, &options, &frames);
            assert_same_rows("swept", extracted.clone(), swept);
        }
    }
}

/// A packet of a flow of its own.
fn single(port: u64, time_ns: i64) -> OwnedFrame {
    let frame = build::udp(at(&format!("192.0.2.1:{port}")), at("192.0.2.2:53"))
        .payload([1; 20])
        .frame();
    let length = u32::try_from(frame.len()).unwrap();
    captured(time_ns, frame, length)
}

#[test]
fn a_full_table_makes_room_for_each_new_flow() {
    if !sys::require::root() {
        return;
    }
    for hook in [Hook::Xdp, Hook::Tc] {
        let mut settings = settings(Options::default());
        settings.flows_per_cpu = 16;
        let mut plane = hook.load(&settings);
        let mut flows = Vec::new();
        for port in 0..500_u64 {
            for packet in 0..3 {
                let captured = single(1000 + port, SECOND + 10 * port.cast_signed() + packet);
                hook.run(plane.program(), &captured);
            }
            plane.collect(&mut |flow| flows.push(*flow)).unwrap();
        }
        assert_eq!(flows.len(), 500 - 16, "{hook:?}: 16 flows have room");
        assert!(flows.iter().all(|flow| flow.end == End::Full));
        let account = finish(plane, &mut flows);
        assert_eq!((account.packets, account.lost()), (1500, 0), "{hook:?}");
        assert_eq!(account.table_full, 0, "{hook:?}: none leaves alone");
        assert_eq!(flows.len(), 500, "{hook:?}");
        assert!(flows.iter().all(|flow| flow.packets() == 3), "{hook:?}");
    }
}

#[test]
fn a_flow_with_packets_stays_in_a_full_table() {
    if !sys::require::root() {
        return;
    }
    let mut settings = settings(Options::default());
    settings.flows_per_cpu = 16;
    let mut plane = load(&settings);
    let mut flows = Vec::new();
    for port in 0..300_u64 {
        let time_ns = SECOND + 10 * port.cast_signed();
        for (port, time_ns) in [(1, time_ns), (1000 + port, time_ns + 1)] {
            run(plane.program(), &single(port, time_ns));
        }
        plane.collect(&mut |flow| flows.push(*flow)).unwrap();
    }
    assert_eq!(flows.len(), 301 - 16);
    finish(plane, &mut flows);
    let busy: Vec<u64> = flows.iter().map(Flow::packets).filter(|n| *n > 1).collect();
    assert_eq!(
        busy,
        [300],
        "one row of the flow that had packets all along"
    );
}

#[test]
fn entries_of_flows_that_have_ended_make_way() {
    if !sys::require::root() {
        return;
    }
    let mut settings = settings(Options::default());
    settings.flows_per_cpu = 16;
    let mut plane = load(&settings);
    let mut flows = Vec::new();
    // Sweeps take flows out, and leave entries of 20 times as many as there is room for.
    for round in 0..40_i64 {
        for port in 0..8_u64 {
            let time_ns = 1000 * SECOND * round + port.cast_signed();
            run(plane.program(), &single(1000 + port, time_ns));
        }
        let horizon = 1000 * SECOND * round + 500 * SECOND;
        plane
            .sweep(horizon, Duration::MAX, &mut |flow| flows.push(*flow))
            .unwrap();
    }
    assert!(flows.iter().all(|flow| flow.end == End::Idle));
    let ended = flows.len();
    for port in 0..100_u64 {
        let time_ns = 100_000 * SECOND + port.cast_signed();
        run(plane.program(), &single(2000 + port, time_ns));
    }
    plane.collect(&mut |flow| flows.push(*flow)).unwrap();
    assert_eq!(flows.len() - ended, 100 - 16);
    let account = finish(plane, &mut flows);
    assert_eq!((account.table_full, account.lost()), (0, 0));
}

#[test]
fn without_room_in_the_ring_packets_are_dropped_by_name() {
    if !sys::require::root() {
        return;
    }
    let mut settings = settings(Options::default());
    settings.flows_per_cpu = 16;
    // Three records of 1 KiB and their headers.
    settings.ring_bytes = 4096;
    let mut plane = load(&settings);
    let mut flows = Vec::new();
    // At the later time the flows in the table have ended long ago.
    for time in [SECOND, 1000 * SECOND] {
        for port in 0..40 {
            run(plane.program(), &single(1000 + port, time));
        }
    }
    let swept = plane
        .sweep(5000 * SECOND, Duration::MAX, &mut |flow| flows.push(*flow))
        .unwrap();
    assert!(swept.ring_full > 0 && swept.evicted > 0, "{swept:?}");
    while plane.open_packets().unwrap() > 0 {
        plane
            .sweep(5000 * SECOND, Duration::MAX, &mut |flow| flows.push(*flow))
            .unwrap();
    }
    let account = finish(plane, &mut flows);
    assert_eq!((account.packets, account.table_full), (80, 0));
    // Three flows could leave.
    assert_eq!(account.lost_table_full, 24 - 3 + 24);
    assert_eq!(account.lost_ring_full, 16);
    assert_eq!(account.exported, 16 + 3);
}

#[test]
fn at_tc_a_packet_that_stands_for_several_is_marked() {
    if !sys::require::root() {
        return;
    }
    let plane = Hook::Tc.load(&settings(Options::default()));
    for (time, segments) in [(1, 0), (2, 1), (3, 44)] {
        run_at_tc(plane.program(), &single(1, time * SECOND), segments);
    }
    let mut flows = Vec::new();
    finish(plane, &mut flows);
    assert_eq!((flows[0].packets(), flows[0].remarks().aggregated), (3, 1));
}

#[test]
fn the_verifier_needs_few_looks() {
    use libbpf_rs::Program;
    use libbpf_rs::query::ProgInfoIter;
    if !sys::require::root() {
        return;
    }
    for hook in [Hook::Xdp, Hook::Tc] {
        let plane = hook.load(&settings(Options::default()));
        let id = Program::id_from_fd(plane.program()).unwrap();
        let info = ProgInfoIter::default().find(|info| info.id == id).unwrap();
        // 10 000 at the time of writing; a program may use a million. More than a loop's worth of it
        // would mean that the verifier looks at each round anew.
        let insns = info.verified_insns;
        assert!(insns < 50_000, "{hook:?}: {insns}");
    }
}
