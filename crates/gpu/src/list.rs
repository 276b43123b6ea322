//! The devices of this machine, by back end.

use std::fmt;

use datapath::Missing;

use crate::{Error, cuda, opencl};

/// How devices are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    OpenCl,
    /// NVIDIA's devices.
    Cuda,
}

impl Backend {
    pub const ALL: [Self; 2] = [Self::OpenCl, Self::Cuda];

    /// How people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "opencl",
            Self::Cuda => "cuda",
        }
    }

    /// Its devices.
    ///
    /// # Errors
    /// The machine lacks something for this back end.
    pub fn devices(self) -> Result<Vec<DeviceInfo>, Missing> {
        match self {
            Self::OpenCl => opencl::devices(),
            Self::Cuda => cuda::devices(),
        }
    }
}

/// The kind of processor of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Gpu,
    /// This machine's own processor, as PoCL's devices are: its times do not stand for a GPU's.
    Cpu,
    Other,
}

impl Kind {
    /// How people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Cpu => "CPU",
            Self::Other => "accelerator",
        }
    }
}

/// A device that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub backend: Backend,
    /// Its place among the devices of the back end.
    pub index: usize,
    pub kind: Kind,
    /// The driver's name for the device.
    pub model: String,
    /// The driver and its version.
    pub driver: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes of its largest buffer.
    pub largest: u64,
}

impl DeviceInfo {
    /// How it is chosen: `opencl:0`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.backend.name(), self.index)
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, kind) = (self.name(), self.kind.name());
        write!(f, "{name} ({}, a {kind})", self.model)
    }
}

/// The devices of each back end, or what this machine lacks for it.
pub fn devices() -> impl Iterator<Item = (Backend, Result<Vec<DeviceInfo>, Missing>)> {
    Backend::ALL
        .into_iter()
        .map(|backend| (backend, backend.devices()))
}

/// The device of this name.
///
/// # Errors
/// A back end that this machine lacks; no such device.
pub fn find(name: &str) -> Result<DeviceInfo, Error> {
    let (backend, _) = name.split_once(':').unwrap_or((name, ""));
    let backend = Backend::ALL
        .into_iter()
        .find(|known| known.name() == backend);
    if let Some(backend) = backend {
        let devices = backend.devices()?;
        if let Some(device) = devices.into_iter().find(|device| device.name() == name) {
            return Ok(device);
        }
    }
    let there = devices().filter_map(|(_, found)| found.ok()).flatten();
    Err(Error::NoDevice {
        name: name.to_owned(),
        there: there.map(|device| device.name()).collect(),
    })
}
