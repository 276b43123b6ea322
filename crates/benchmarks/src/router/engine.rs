//! The engines under measurement: tables of CPUs, of a device, or of a device that CPUs replace.

use gpu::{DeviceInfo, Kind};
use router::cpu::{self, Tables};
use router::engine::{Contents, Engine};
use router::gpu::cpu_fallback::{self, FallbackStatus, FallbackTables};
use router::gpu::{self as device, Gpu, LaunchMode, Schedule, UpdateCosts, Width};
use router::image::ImageFile;
use router::rules::Hits;

use super::Dataset;
use crate::Error;

/// Which engine decides about packets.
#[derive(Clone, Debug)]
pub enum Options {
    Cpu(cpu::Options),
    Device(device::Options),
    /// CPUs decide once the device has failed.
    Fallback {
        cpu: cpu::Options,
        device: device::Options,
    },
}

impl Options {
    pub fn name(&self) -> String {
        match self {
            Self::Cpu(options) => cpu_name(options),
            Self::Device(options)
            | Self::Fallback {
                device: options, ..
            } => device_name(options),
        }
    }

    /// What to know of this engine's times.
    pub fn caution(&self) -> Option<&'static str> {
        match self {
            Self::Cpu(_) => None,
            Self::Device(options)
            | Self::Fallback {
                device: options, ..
            } => caution(&options.device),
        }
    }
}

/// As in `mixed paged avx2`.
pub fn cpu_name(options: &cpu::Options) -> String {
    let (layout4, layout6) = (options.layout4.name(), options.layout6.name());
    format!("{layout4} {layout6} {}", options.simd.name())
}

/// As in `opencl:0 mixed headers pinned 4 streams per-function u16 (some model, a GPU)`: how it works on
/// batches is named only where it is not the default.
pub fn device_name(options: &device::Options) -> String {
    let (listed, layout4) = (&options.device, options.layout4.name());
    let (name, copy, memory) = (listed.name(), options.copy.name(), options.memory.name());
    let streams = options.streams;
    let several = if streams.get() == 1 { "" } else { "s" };
    let mut name = format!("{name} {layout4} {copy} {memory} {streams} stream{several}");
    if options.launch_mode != LaunchMode::Stream {
        name += &format!(" {}", options.launch_mode.name());
    }
    if options.schedule != Schedule::PerPacket {
        name += &format!(" {}", options.schedule.name());
    }
    if options.result != Width::U32 {
        name += &format!(" {}", options.result.name());
    }
    name + &format!(" ({}, a {})", listed.model, listed.kind.name())
}

/// What to know of times on this device.
pub fn caution(listed: &DeviceInfo) -> Option<&'static str> {
    (listed.kind == Kind::Cpu).then_some("the device is a CPU: its times do not stand for a GPU's")
}

/// An engine, and what is reported of it.
pub(super) trait MeasuredEngine: Engine {
    /// Bytes of the structures for routes, and for rules.
    fn bytes(&self) -> (usize, usize);
    fn hits(&self) -> [Hits; 2];

    /// What route changes cost batches on a device.
    fn update_costs(&self) -> Option<UpdateCosts> {
        None
    }

    /// What CPUs did in the place of a failed device.
    fn fallback_status(&self) -> Option<FallbackStatus> {
        None
    }

    /// The device that holds the tables, if one does.
    fn device(&self) -> Option<&Gpu> {
        None
    }
}

impl MeasuredEngine for Tables {
    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }

    fn hits(&self) -> [Hits; 2] {
        self.hits()
    }
}

impl MeasuredEngine for Gpu {
    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }

    fn hits(&self) -> [Hits; 2] {
        self.hits()
    }

    fn update_costs(&self) -> Option<UpdateCosts> {
        Some(self.update_costs())
    }

    fn device(&self) -> Option<&Gpu> {
        Some(self)
    }
}

impl MeasuredEngine for FallbackTables {
    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }

    fn hits(&self) -> [Hits; 2] {
        self.hits()
    }

    fn update_costs(&self) -> Option<UpdateCosts> {
        self.update_costs()
    }

    fn fallback_status(&self) -> Option<FallbackStatus> {
        self.fallback_status()
    }

    fn device(&self) -> Option<&Gpu> {
        self.device()
    }
}

/// Tables of CPUs, with the arrays of the image where there is one.
pub(super) fn on_cpus(
    contents: Contents,
    image: Option<&ImageFile>,
    options: &cpu::Options,
) -> Result<Tables, Error> {
    let tables = match image {
        Some(image) => Tables::restore(image, contents, options),
        None => Tables::setup(contents, options),
    }?;
    warn(tables.warnings());
    Ok(tables)
}

/// Tables of a device, with the arrays of the image where there is one.
pub(super) fn on_device(
    contents: Contents,
    image: Option<&ImageFile>,
    options: &device::Options,
) -> Result<Gpu, Error> {
    let gpu = match image {
        Some(image) => Gpu::restore(image, contents, options),
        None => Gpu::setup(contents, options),
    }?;
    warn(gpu.warnings());
    Ok(gpu)
}

/// Tables of a device and of the CPUs that replace it.
pub(super) fn fallback(
    dataset: Dataset,
    cpu: &cpu::Options,
    device: &device::Options,
) -> Result<FallbackTables, Error> {
    let options = cpu_fallback::Options {
        cpu: *cpu,
        device: Some(device.clone()),
        fallback: true,
    };
    let tables = match &dataset.image {
        Some(image) => FallbackTables::restore(image, dataset.contents, &options),
        None => FallbackTables::setup(dataset.contents, &options),
    };
    let tables = tables.map_err(|error| match error {
        cpu_fallback::Error::Cpu(error) => Error::from(error),
        cpu_fallback::Error::Device(error) => Error::from(error),
    })?;
    warn(tables.warnings());
    Ok(tables)
}

fn warn(warnings: impl IntoIterator<Item = impl std::fmt::Display>) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}
