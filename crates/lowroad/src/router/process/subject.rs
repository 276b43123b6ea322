//! What packets are put through: tables of this machine's CPUs, or of a device.

use std::num::NonZeroUsize;

use anyhow::anyhow;
use clap::Args;
use clap::builder::TypedValueParser;
use gpu::{Kind, Listed, Memory};
use lpm::Layout4;
use router::cpu::Tables;
use router::engine::{Contents, Engine};
use router::gpu::backed::{self, Backed, Fallen};
use router::gpu::{CaughtUp, Copy, Error, Gpu, Options};
use router::image::Stored;
use router::rules::Hits;

use super::Given;
use super::way::{self, Way};
use crate::exit::Failure;
use crate::router::engine::{self, Choice, named};
use crate::router::given::failure;

/// An engine, and what is told of it.
pub(super) trait Subject: Engine {
    /// Of the structures for routes, and for rules.
    fn bytes(&self) -> (usize, usize);
    fn hits(&self) -> [Hits; 2];

    /// What changes of routes have cost batches on a device.
    fn caught_up(&self) -> Option<CaughtUp> {
        None
    }

    /// What CPUs did in the place of a device that was lost.
    fn fallen(&self) -> Option<Fallen> {
        None
    }

    /// What holds the tables on a device, if one does.
    fn device(&self) -> Option<&Gpu> {
        None
    }
}

impl Subject for Tables {
    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }

    fn hits(&self) -> [Hits; 2] {
        self.hits()
    }
}

impl Subject for Gpu {
    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }

    fn hits(&self) -> [Hits; 2] {
        self.hits()
    }

    fn caught_up(&self) -> Option<CaughtUp> {
        Some(self.caught_up())
    }

    fn device(&self) -> Option<&Gpu> {
        Some(self)
    }
}

impl Subject for Backed {
    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }

    fn hits(&self) -> [Hits; 2] {
        self.hits()
    }

    fn caught_up(&self) -> Option<CaughtUp> {
        self.caught_up()
    }

    fn fallen(&self) -> Option<Fallen> {
        self.fallen()
    }

    fn device(&self) -> Option<&Gpu> {
        self.device()
    }
}

/// A device in place of CPUs.
#[derive(Debug, Args)]
pub(in crate::router) struct Device {
    /// Decide on this device: see lowroad router devices
    #[arg(long, value_name = "NAME")]
    pub(in crate::router) device: Option<String>,
    /// What of a packet goes to the device [default: headers]
    #[arg(long, value_parser = copy(), value_name = "WHAT", requires = "device")]
    gpu_copy: Option<Copy>,
    /// Where batches lie on their way to the device and back [default: pinned]
    #[arg(long, value_parser = memory(), value_name = "MEMORY", requires = "device")]
    gpu_mem: Option<Memory>,
    /// Parts of a batch that are on their way at once, each in a queue of its own [default: 1]
    #[arg(long, value_name = "N", requires = "device")]
    streams: Option<NonZeroUsize>,
    #[command(flatten)]
    way: Way,
}

impl Device {
    /// Which one, and how batches get there.
    pub(in crate::router) fn options(
        &self,
        name: &str,
        layout4: Layout4,
    ) -> Result<Options, Failure> {
        let listed = gpu::find(name).map_err(|error| refused(error.into()))?;
        let mut options = Options {
            layout4,
            copy: self.gpu_copy.unwrap_or(Copy::Headers),
            memory: self.gpu_mem.unwrap_or(Memory::Pinned),
            streams: self.streams.unwrap_or(NonZeroUsize::MIN),
            ..Options::of(listed)
        };
        self.way.set(&mut options);
        Ok(options)
    }
}

/// As in `opencl:0 mixed headers pinned 4 streams (some model, a GPU)`.
pub(in crate::router) fn name(options: &Options) -> String {
    let (listed, layout4) = (&options.device, options.layout4.name());
    let (name, memory, streams) = (listed.name(), options.memory.name(), options.streams);
    let several = if streams.get() == 1 { "" } else { "s" };
    let (model, kind) = (&listed.model, listed.kind.name());
    let (copy, way) = (options.copy.name(), way::name(options));
    format!("{name} {layout4} {copy} {memory} {streams} stream{several}{way} ({model}, a {kind})")
}

/// What is to be known of times on this device.
pub(in crate::router) fn caution(listed: &Listed) -> Option<&'static str> {
    (listed.kind == Kind::Cpu).then_some("the device is a CPU: its times are no GPU's")
}

/// Tables of this kind, of an image's arrays where they are of its routes.
pub(in crate::router) fn on_device(
    contents: Contents,
    image: Option<&Stored>,
    options: &Options,
) -> Result<Gpu, Failure> {
    let gpu = match image {
        Some(image) => Gpu::restore(image, contents, options),
        None => Gpu::setup(contents, options),
    };
    let gpu = gpu.map_err(refused)?;
    for warning in gpu.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(gpu)
}

/// As `on_device`, with CPUs behind the device.
pub(in crate::router) fn backed(
    given: Given,
    options: &Options,
    choice: &Choice,
) -> Result<Backed, Failure> {
    let options = backed::Options {
        cpu: choice.options(),
        device: Some(options.clone()),
        fallback: true,
    };
    let tables = match &given.image {
        Some(image) => Backed::restore(image, given.contents, &options),
        None => Backed::setup(given.contents, &options),
    };
    let tables = tables.map_err(|error| match error {
        backed::Error::Cpu(error) => engine::refused(error),
        backed::Error::Device(error) => refused(error),
    })?;
    for warning in tables.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(tables)
}

/// Why there are no tables, in the words of the arguments.
fn refused(error: Error) -> Failure {
    match error {
        Error::Device(gpu::Error::Missing(missing)) => {
            Failure::Missing(vec![("--device".to_owned(), missing)])
        }
        Error::Device(error @ gpu::Error::NoDevice { .. }) => Failure::Input(error.to_string()),
        Error::Image(error) => failure(error),
        error @ Error::Options(_) => Failure::Input(error.to_string()),
        error @ Error::Width { .. } => Failure::Input(format!("--gpu-result: {error}")),
        error => Failure::Failed(anyhow!(error)),
    }
}

fn copy() -> impl TypedValueParser<Value = Copy> {
    named(Copy::ALL, Copy::name, |copy| match copy {
        Copy::Headers => "Keys, or addresses alone where nothing is filtered",
        Copy::Full => "The whole frame, in which the device finds the key",
    })
}

fn memory() -> impl TypedValueParser<Value = Memory> {
    named(Memory::ALL, Memory::name, |memory| match memory {
        Memory::Pageable => "Ordinary memory, which the driver copies once more",
        Memory::Pinned => "Memory that the device copies from and to by itself",
        Memory::Mapped => "Memory that the device reads and writes where it is",
    })
}
