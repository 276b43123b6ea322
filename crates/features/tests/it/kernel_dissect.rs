//! The kernel's dissector against the userspace one: every frame a row of its own.

use features::counters::Rejection;
use features::flow::{Contents, Flow, Table};
use features::kernel::{Clock, FlowPlane, REFUSALS, Settings};
use features::{Options, PacketReader};
use packet::pcap::OwnedFrame;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::kernel::frames::kinds;
use crate::kernel::{Hook, MIN_FRAME, assert_same_rows, captured, run};

/// No packet is of the same flow as the one before.
fn options() -> Options {
    let mut options = Options::default();
    options.timers.idle_ns = 0;
    options
}

/// Both dissectors on these frames, a microsecond apart: the same rows, the same refusals.
fn compare(what: &str, frames: Vec<(Vec<u8>, u32)>) {
    let frames: Vec<OwnedFrame> = (1..)
        .zip(frames)
        .filter(|(_, (bytes, _))| bytes.len() >= MIN_FRAME)
        .map(|(time, (bytes, on_wire))| captured(time * 1000, bytes, on_wire))
        .collect();
    for frames in frames.chunks(8000) {
        for hook in [Hook::Xdp, Hook::Tc] {
            let mut frames = frames.to_vec();
            hook.fit(&mut frames);
            compare_some(hook, &format!("{hook:?}, {what}"), &frames);
        }
    }
}

fn compare_some(hook: Hook, what: &str, frames: &[OwnedFrame]) {
    let options = options();
    let mut reader = PacketReader::new(&options);
    let mut table = Table::new(options.timers, options.limits);
    let mut expected = Vec::new();
    let mut plane = plane(hook, options);
    let mut found = Vec::new();
    for captured in frames {
        if let Some(packet) = reader.read(&captured.as_frame()) {
            table.add(&packet, &mut |flow| expected.push(*flow));
        }
        hook.run(plane.program(), captured);
        plane.collect(&mut |flow| found.push(*flow)).unwrap();
    }
    table.drain(&mut |flow| expected.push(*flow));
    let account = plane.account().unwrap();
    plane.finish(&mut |flow| found.push(*flow)).unwrap();
    explain(frames, &expected, &found);
    assert_same_rows(what, expected, found);
    assert_eq!(account.refused[..5], refused(&reader), "{what}");
    assert_eq!(account.refused[5], 0, "{what}: {}", REFUSALS[5]);
    assert_eq!(
        account.lone_fragments,
        reader.seen().lone_fragments,
        "{what}"
    );
    assert_eq!(account.bytes, reader.seen().bytes, "{what}");
}

fn plane(hook: Hook, options: Options) -> FlowPlane {
    let settings = Settings {
        options,
        clock: Clock::Metadata,
        flows_per_cpu: 8192,
        ring_bytes: 1 << 20,
        ..Settings::default()
    };
    hook.load(&settings)
}

fn refused(reader: &PacketReader) -> [u64; 5] {
    [
        Rejection::TruncatedLink,
        Rejection::TooDeep,
        Rejection::NotIp,
        Rejection::TruncatedIp,
        Rejection::BadIp,
    ]
    .map(|why| reader.seen().refused(why))
}

/// Shows the frame that only one of both has a row of.
fn explain(frames: &[OwnedFrame], expected: &[Flow], found: &[Flow]) {
    for captured in frames {
        let time = captured.timestamp_ns;
        let of = |flows: &[Flow]| {
            let mut flow = flows.iter().find(|flow| flow.first_ns == time)?.clone();
            // The kernel reads no payload.
            flow.contents = Contents::default();
            Some(flow)
        };
        assert_eq!(of(expected), of(found), "{captured:02x?}");
    }
}

#[test]
fn every_kind_of_frame_and_every_truncation_reads_alike() {
    if !sys::require::root() {
        return;
    }
    let mut frames = Vec::new();
    for frame in kinds() {
        let whole = u32::try_from(frame.len()).unwrap();
        for length in MIN_FRAME..=frame.len().min(200) {
            frames.push((frame[..length].to_vec(), whole));
            frames.push((frame[..length].to_vec(), u32::try_from(length).unwrap()));
        }
        frames.push((frame, whole));
    }
    compare("truncated", frames);
}

/// Frames of a property's 100 cases of each of ten seeds, the same ones every time.
fn for_ten_seeds<S: Strategy<Value = Vec<u8>>>(strategy: &S) -> Vec<(Vec<u8>, u32)> {
    let mut frames = Vec::new();
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..100 * sys::require::fuzz() {
            let frame = strategy.new_tree(&mut runner).unwrap().current();
            let length = u32::try_from(frame.len()).unwrap();
            frames.push((frame, length));
        }
    }
    frames
}

#[test]
fn frames_with_changed_bytes_read_alike() {
    if !sys::require::root() {
        return;
    }
    // In longer ones a change can make a chain of more extension headers than the kernel follows.
    let short = |frame: &Vec<u8>| frame.len() < 54 + 64 * 8;
    let frames: Vec<Vec<u8>> = kinds().into_iter().filter(short).collect();
    let change = (any::<Index>(), any::<u8>());
    let cases = (any::<Index>(), prop::collection::vec(change, 1..6));
    let changed = cases.prop_map(move |(frame, changes)| {
        let mut frame = frames[frame.index(frames.len())].clone();
        let headers = frame.len().min(90);
        for (at, byte) in changes {
            frame[at.index(headers)] = byte;
        }
        frame
    });
    compare("changed", for_ten_seeds(&changed));
}

#[test]
fn noise_reads_alike() {
    if !sys::require::root() {
        return;
    }
    let noise = prop::collection::vec(any::<u8>(), MIN_FRAME..120);
    let kind = prop::sample::select(vec![
        0x0800_u16, 0x86dd, 0x8100, 0x8847, 0x8864, 0x88e7, 0x0050,
    ]);
    let noise = (noise, kind).prop_map(|(mut frame, ethertype)| {
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame
    });
    compare("noise", for_ten_seeds(&noise));
}

#[test]
fn a_longer_chain_of_extension_headers_is_refused_by_name() {
    if !sys::require::root() {
        return;
    }
    use packet::build::{Extension, udp};
    let ends = ("[2001:db8::1]:5000", "[2001:db8::2]:5004");
    let frame = (0..65).fold(
        udp(ends.0.parse().unwrap(), ends.1.parse().unwrap()),
        |b, _| b.extension(Extension::DestinationOptions(0)),
    );
    let frame = frame.frame();
    let length = u32::try_from(frame.len()).unwrap();
    let plane = plane(Hook::Xdp, options());
    run(plane.program(), &captured(1, frame, length));
    let account = plane.account().unwrap();
    assert_eq!((account.packets, account.refused), (1, [0, 0, 0, 0, 0, 1]));
}
