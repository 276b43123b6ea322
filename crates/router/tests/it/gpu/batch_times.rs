//! Times of batches by the device's clock. Timed batches give the same decisions.

use std::num::NonZeroUsize;

use gpu::Memory;
use router::engine::{Engine, Function, Worker};
use router::gpu::{Gpu, LaunchMode, Options};

use super::{able, contents, device, frames};

#[test]
fn timed_batches_give_the_same_and_a_stream_without_a_part_has_no_time() {
    let Some(device) = device() else { return };
    let contents = contents();
    let frames = frames(&contents, 400);
    for memory in Memory::ALL {
        let options = Options {
            memory,
            streams: NonZeroUsize::new(3).unwrap(),
            ..Options::of(device.clone())
        };
        let gpu = Gpu::setup(contents.clone(), &options).unwrap();
        let mut plain = Worker::new(gpu.processor(Function::Both).unwrap(), 400);
        let timed = gpu.timed_processor(Function::Both).unwrap().unwrap();
        let mut timed = Worker::new(timed, 400);
        // The second one has fewer packets than there are streams.
        for packets in [400, 2, 400] {
            let these = || (0..packets).map(|at| frames.get(at));
            plain.decide(these()).unwrap();
            timed.decide(these()).unwrap();
            assert_eq!(plain.decisions(), timed.decisions());
            let parts = timed.processor().batch_times().unwrap();
            assert_eq!(parts.len(), 3);
            let some = parts.iter().flatten();
            assert_eq!(some.clone().count() == 3, packets == 400);
            for part in some {
                assert!(!part.times.kernels.is_empty());
                assert_eq!(part.times.upload.is_none(), memory == Memory::Mapped);
                assert!(part.moved > 0, "a lookup is 32 bytes at least");
            }
        }
        assert!(
            plain
                .processor()
                .batch_times()
                .unwrap()
                .iter()
                .flatten()
                .all(|part| { part.times.kernels.is_empty() && part.times.upload.is_none() })
        );
        assert!(gpu.bandwidth().unwrap() > 0.0);
    }
    let recorded = Options {
        launch_mode: LaunchMode::Graph,
        memory: Memory::Mapped,
        ..Options::of(device)
    };
    if !able(&recorded) {
        return;
    }
    let gpu = Gpu::setup(contents, &recorded).unwrap();
    assert!(gpu.timed_processor(Function::Both).unwrap().is_none());
}
