//! Every GPU of this machine, by every way to launch kernels.

use std::num::NonZeroUsize;

use gpu::{Backend, DeviceInfo, Kind, Memory};
use router::gpu::{CopyMode, LaunchMode, Options, Schedule, Width};

use super::{able, agree, contents, frames};

/// Reports the skip where there is none.
fn graphics() -> Vec<DeviceInfo> {
    let found = Backend::ALL
        .into_iter()
        .filter_map(|backend| backend.devices().ok());
    let all: Vec<DeviceInfo> = found
        .flatten()
        .filter(|device| device.kind == Kind::Gpu)
        .collect();
    if all.is_empty() {
        sys::require::skip(sys::require::Class::Hardware, "there is no GPU");
    }
    all
}

#[test]
fn every_gpu_decides_as_cpus_do() {
    let contents = contents();
    let frames = frames(&contents, 3000);
    for device in graphics() {
        for (at, (launch_mode, memory, schedule)) in ways().enumerate() {
            let options = Options {
                launch_mode,
                memory,
                schedule,
                result: Width::ALL[at % Width::ALL.len()],
                copy: CopyMode::ALL[at / 2 % 2],
                streams: NonZeroUsize::new(1 + at % 2).unwrap(),
                ..Options::of(device.clone())
            };
            if able(&options) {
                agree(&contents, &frames, &options, &[1, 33, 700, 3000]);
            }
        }
    }
}

/// What goes together.
fn ways() -> impl Iterator<Item = (LaunchMode, Memory, Schedule)> {
    let launched = LaunchMode::ALL
        .into_iter()
        .flat_map(|how| Memory::ALL.map(|memory| (how, memory)));
    let all =
        launched.flat_map(|(how, memory)| Schedule::ALL.map(|schedule| (how, memory, schedule)));
    all.filter(|(launch_mode, memory, schedule)| match launch_mode {
        LaunchMode::Stream => true,
        LaunchMode::Graph => *memory != Memory::Pageable,
        LaunchMode::Persistent => *memory == Memory::Mapped && *schedule == Schedule::PerPacket,
    })
}
