//! Decisions do not depend on the options of schedule, launch and result.

use std::num::NonZeroUsize;

use gpu::Memory;
use lpm::{NextHop, Prefix4};
use router::cpu::{self, Tables};
use router::engine::{Contents, Decision, Engine, Function, Processor, Verdict, Worker};
use router::forward::Plane;
use router::frames::Frames;
use router::gpu::{CopyMode, Error, Gpu, LaunchMode, Options, Schedule, Width};

use super::{able, agree, contents, decide, device, frames};

#[test]
fn every_schedule_and_every_result_gives_the_same() {
    let Some(device) = device() else { return };
    let contents = contents();
    let frames = frames(&contents, 1000);
    for (at, (schedule, result)) in Schedule::ALL
        .into_iter()
        .flat_map(|schedule| Width::ALL.map(|result| (schedule, result)))
        .enumerate()
    {
        let options = Options {
            schedule,
            result,
            memory: Memory::ALL[at % 3],
            copy: CopyMode::ALL[at % 2],
            streams: NonZeroUsize::new(1 + at % 2 * 2).unwrap(),
            ..Options::of(device.clone())
        };
        agree(&contents, &frames, &options, &[33, 700]);
        agree(&Contents::default(), &frames, &options, &[500]);
    }
}

#[test]
fn recorded_batches_give_the_same() {
    let Some(device) = device() else { return };
    let contents = contents();
    let frames = frames(&contents, 1000);
    for (at, (schedule, result)) in Schedule::ALL
        .into_iter()
        .flat_map(|schedule| Width::ALL.map(|result| (schedule, result)))
        .enumerate()
    {
        let options = Options {
            launch_mode: LaunchMode::Graph,
            schedule,
            result,
            memory: [Memory::Pinned, Memory::Mapped][at % 2],
            copy: CopyMode::ALL[at / 2 % 2],
            streams: NonZeroUsize::new(1 + at % 2 * 2).unwrap(),
            ..Options::of(device.clone())
        };
        if !able(&options) {
            return;
        }
        agree(&contents, &frames, &options, &[33, 700]);
    }
    let pageable = Options {
        launch_mode: LaunchMode::Graph,
        ..Options::of(device)
    };
    let refused = Gpu::setup(contents, &pageable).unwrap_err();
    assert!(
        refused.to_string().contains("pinned or mapped"),
        "{refused}"
    );
}

/// The decision about a packet by a table of one route and no rule.
fn decided(worker: &mut Worker<router::gpu::DeviceProcessor>) -> Decision {
    let (from, to) = ("192.0.2.1:9", "198.51.100.1:53");
    let udp = packet::build::udp(from.parse().unwrap(), to.parse().unwrap());
    let mut frames = Frames::default();
    frames.push(&udp.frame());
    worker.decide(std::iter::once(frames.get(0))).unwrap();
    worker.decisions()[0]
}

#[test]
fn a_next_hop_with_a_higher_number_takes_more_bits_from_the_next_batch_on() {
    let Some(device) = device() else { return };
    let options = Options {
        result: Width::Compact,
        ..Options::of(device)
    };
    let mut gpu = Gpu::setup(Contents::default(), &options).unwrap();
    let mut worker = Worker::new(gpu.processor(Function::Both).unwrap(), 1);
    let all: Prefix4 = "0.0.0.0/0".parse().unwrap();
    for number in [1, 3, 4, 300, NextHop::MAX, 2] {
        gpu.route4(all, NextHop::new(number)).unwrap();
        let wanted = Decision::new(Verdict::Forward, number);
        assert_eq!(decided(&mut worker), wanted);
    }
}

#[test]
fn a_next_hop_that_two_bytes_do_not_hold_is_refused() {
    let Some(device) = device() else { return };
    let options = Options {
        result: Width::U16,
        ..Options::of(device)
    };
    let mut gpu = Gpu::setup(Contents::default(), &options).unwrap();
    let mut worker = Worker::new(gpu.processor(Function::Both).unwrap(), 1);
    let all: Prefix4 = "0.0.0.0/0".parse().unwrap();
    gpu.route4(all, NextHop::new(16_383)).unwrap();
    let refused = gpu.route4(all, NextHop::new(16_384)).unwrap_err();
    assert!(matches!(refused, Error::Width { hop: 16_384, .. }));
    let wanted = Decision::new(Verdict::Forward, 16_383);
    assert_eq!(decided(&mut worker), wanted, "as before");
    let contents = Contents {
        v4: [(all, NextHop::new(20_000).unwrap())].into_iter().collect(),
        ..Contents::default()
    };
    let refused = Gpu::setup(contents, &options).unwrap_err();
    assert!(matches!(refused, Error::Width { hop: 20_000, .. }));
}

#[test]
fn a_kernel_that_stays_gives_the_same() {
    let Some(device) = device() else { return };
    let contents = contents();
    let frames = frames(&contents, 400);
    for (at, result) in Width::ALL.into_iter().enumerate() {
        let options = Options {
            launch_mode: LaunchMode::Persistent,
            memory: Memory::Mapped,
            result,
            copy: CopyMode::ALL[at % 2],
            streams: NonZeroUsize::new(1 + at % 2).unwrap(),
            ..Options::of(device.clone())
        };
        if !able(&options) {
            return;
        }
        agree(&contents, &frames, &options, &[33, 400]);
    }
}

#[test]
fn a_kernel_that_stays_takes_batches_of_any_size_one_after_the_other() {
    let Some(device) = device() else { return };
    let options = Options {
        launch_mode: LaunchMode::Persistent,
        memory: Memory::Mapped,
        ..Options::of(device)
    };
    if !able(&options) {
        return;
    }
    let contents = contents();
    let frames = frames(&contents, 4000);
    let tables = Tables::setup(contents.clone(), &cpu::Options::default()).unwrap();
    let wanted = decide(tables.processor(Function::Both).unwrap(), &frames, 256).0;
    let gpu = Gpu::setup(contents, &options).unwrap();
    let mut worker = Worker::new(gpu.processor(Function::Both).unwrap(), 3000);
    // More batches than batch numbers.
    let sizes = [1, 1000, 129, 1, 3000].into_iter().cycle().take(1000);
    let mut start = 0;
    for size in sizes.chain(std::iter::repeat_n(1, 70_000)) {
        let batch = start..frames.len().min(start + size);
        worker
            .decide(batch.clone().map(|at| frames.get(at)))
            .unwrap();
        assert_eq!(worker.decisions(), &wanted[batch.clone()], "{batch:?}");
        start = batch.end % frames.len();
    }
}

#[test]
fn a_kernel_that_stays_is_given_other_tables_and_one_packet_at_a_time() {
    let Some(device) = device() else { return };
    let options = Options {
        launch_mode: LaunchMode::Persistent,
        memory: Memory::Mapped,
        result: Width::Compact,
        ..Options::of(device)
    };
    if !able(&options) {
        return;
    }
    let mut gpu = Gpu::setup(Contents::default(), &options).unwrap();
    let mut worker = Worker::new(gpu.processor(Function::Both).unwrap(), 1);
    let all: Prefix4 = "0.0.0.0/0".parse().unwrap();
    for number in [1, 2, 300] {
        gpu.route4(all, NextHop::new(number)).unwrap();
        let wanted = Decision::new(Verdict::Forward, number);
        for _ in 0..3 {
            assert_eq!(decided(&mut worker), wanted);
        }
        worker.processor_mut().idle().unwrap();
    }
}
