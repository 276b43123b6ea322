//! The arguments that choose a device, and how it processes batches.

use std::num::NonZeroUsize;

use clap::Args;
use clap::builder::TypedValueParser;
use gpu::Memory;
use lpm::Layout4;
use router::gpu::{CopyMode, Error, LaunchMode, Options, Schedule, Width};

use super::engine::named;
use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(next_help_heading = "Device")]
pub(super) struct Device {
    /// Process packets on this device: see lowroad router devices
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// Copy this of a packet to the device [default: headers]
    #[arg(long, value_parser = copy(), value_name = "WHAT", requires = "device")]
    gpu_copy: Option<CopyMode>,
    /// Keep batches in this memory on their way to the device and back [default: pinned]
    #[arg(long, value_parser = memory(), value_name = "MEMORY", requires = "device")]
    gpu_mem: Option<Memory>,
    /// Split a batch into N parts, each in a queue of its own [default: 1]
    #[arg(long, value_name = "N", requires = "device")]
    streams: Option<NonZeroUsize>,
    /// Launch the device's kernels this way [default: stream]
    #[arg(long, value_parser = launch_mode(), value_name = "HOW", requires = "device")]
    launch: Option<LaunchMode>,
    /// Divide the work of a packet among kernels this way [default: per-packet]
    #[arg(long, value_parser = schedule(), value_name = "SCHEDULE", requires = "device")]
    schedule: Option<Schedule>,
    /// Encode the device's decisions this way [default: u32]
    #[arg(long, value_parser = result(), value_name = "RESULT", requires = "device")]
    gpu_result: Option<Width>,
}

impl Device {
    /// The device of this name, and how it processes batches.
    pub(super) fn options(&self, name: &str, layout4: Layout4) -> Result<Options, Failure> {
        let listed = gpu::find(name).map_err(|error| failure(error.into()))?;
        let default = Options::of(listed);
        Ok(Options {
            layout4,
            copy: self.gpu_copy.unwrap_or(CopyMode::Headers),
            memory: self.gpu_mem.unwrap_or(Memory::Pinned),
            streams: self.streams.unwrap_or(NonZeroUsize::MIN),
            launch_mode: self.launch.unwrap_or(default.launch_mode),
            schedule: self.schedule.unwrap_or(default.schedule),
            result: self.gpu_result.unwrap_or(default.result),
            ..default
        })
    }
}

/// Names the arguments that chose tables which could not be built.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        error @ Error::Width { .. } => Failure::Input(format!("--gpu-result: {error}")),
        error => Failure::from(error).needed_by("--device"),
    }
}

fn copy() -> impl TypedValueParser<Value = CopyMode> {
    named(CopyMode::ALL, CopyMode::name, |copy| match copy {
        CopyMode::Headers => "Keys, or addresses alone without rules",
        CopyMode::Full => "The whole frame, in which the device finds the key",
    })
}

fn memory() -> impl TypedValueParser<Value = Memory> {
    named(Memory::ALL, Memory::name, |memory| match memory {
        Memory::Pageable => "Ordinary memory, which the driver copies once more",
        Memory::Pinned => "Memory that the device copies itself",
        Memory::Mapped => "Memory that the device reads and writes in place",
    })
}

fn launch_mode() -> impl TypedValueParser<Value = LaunchMode> {
    named(LaunchMode::ALL, LaunchMode::name, |mode| match mode {
        LaunchMode::Stream => "A call for each kernel",
        LaunchMode::Graph => "One call for all kernels of a batch, recorded in advance",
        LaunchMode::Persistent => {
            "One kernel that runs all the time and polls mapped memory for batches"
        }
    })
}

fn schedule() -> impl TypedValueParser<Value = Schedule> {
    named(Schedule::ALL, Schedule::name, |schedule| match schedule {
        Schedule::PerPacket => "One kernel routes and filters",
        Schedule::PerFunction => "One kernel routes, one filters, and a third combines the results",
    })
}

fn result() -> impl TypedValueParser<Value = Width> {
    named(Width::ALL, Width::name, |width| match width {
        Width::U32 => "Four bytes",
        Width::U16 => "Two bytes, for at most 16383 next hops",
        Width::Compact => "As many bits as the next hops need",
    })
}
