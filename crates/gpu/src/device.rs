//! A device with kernels, and its memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::Missing;

use crate::lane::Lane;
use crate::times::{Clock, Clocks};
use crate::{Backend, Error, Listed, Memory, Standing, cuda, opencl};

/// Bytes of a copy within a device, which with where they go to are more than its caches have, and how
/// often it is tried.
const COPIED: usize = 64 << 20;
const TRIES: usize = 4;
/// Copies that take less are made more often in a try: the call's own time is no part of them.
const SHORT: Duration = Duration::from_millis(1);

/// An open device and the kernels that were built for it. A clone is the same device.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) inner: Inner,
    listed: Arc<Listed>,
}

#[derive(Clone, Debug)]
pub(crate) enum Inner {
    OpenCl(Arc<opencl::Device>),
    Cuda(Arc<cuda::Device>),
}

/// Memory of a device.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) inner: Memories,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Memories {
    OpenCl(opencl::Buffer),
    Cuda(cuda::Buffer),
}

impl Device {
    /// Opens a device and builds for it the kernels of a source, which are then known by their place
    /// among `kernels`.
    ///
    /// # Errors
    /// A device that is gone; kernels that it refuses.
    pub fn open(listed: &Listed, source: &str, kernels: &[&'static str]) -> Result<Self, Error> {
        Self::open_for(listed, source, kernels, false)
    }

    /// As `open`, of kernels of which some stay: see [`Device::standing`].
    ///
    /// # Errors
    /// As `open`; a device that kernels cannot stay on.
    pub fn open_to_stay(
        listed: &Listed,
        source: &str,
        kernels: &[&'static str],
    ) -> Result<Self, Error> {
        Self::open_for(listed, source, kernels, true)
    }

    fn open_for(
        listed: &Listed,
        source: &str,
        kernels: &[&'static str],
        stays: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            inner: match listed.backend {
                Backend::OpenCl => {
                    let device = opencl::Device::open(listed, source, kernels, stays)?;
                    Inner::OpenCl(Arc::new(device))
                }
                Backend::Cuda => {
                    Inner::Cuda(Arc::new(cuda::Device::open(listed, source, kernels)?))
                }
            },
            listed: Arc::new(listed.clone()),
        })
    }

    /// What it is.
    pub fn listed(&self) -> &Listed {
        &self.listed
    }

    /// Memory of so many bytes, at least one.
    ///
    /// # Errors
    /// More than it has, at all or in one piece.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        let bytes = bytes.max(1);
        self.holds(bytes)?;
        Ok(Buffer {
            inner: match &self.inner {
                Inner::OpenCl(device) => Memories::OpenCl(device.buffer(bytes)?),
                Inner::Cuda(device) => Memories::Cuda(device.buffer(bytes)?),
            },
            bytes,
        })
    }

    /// A way for batches of at most so many bytes to the device and back.
    ///
    /// # Errors
    /// No memory, of the host or of the device.
    pub fn lane(&self, memory: Memory, there: usize, back: usize) -> Result<Lane, Error> {
        self.holds(there.max(back))?;
        Lane::new(self, memory, (there.max(1), back.max(1)), None)
    }

    /// As `lane`, of which each batch's parts are timed: see [`Lane::times`].
    ///
    /// # Errors
    /// As `lane`.
    pub fn timed_lane(
        &self,
        clock: &Clock,
        memory: Memory,
        there: usize,
        back: usize,
    ) -> Result<Lane, Error> {
        self.holds(there.max(back))?;
        Lane::new(self, memory, (there.max(1), back.max(1)), Some(clock))
    }

    /// By which lanes are timed. Times of CUDA count from now.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn clock(&self) -> Result<Clock, Error> {
        Ok(Clock {
            inner: match &self.inner {
                Inner::OpenCl(_) => Clocks::OpenCl,
                Inner::Cuda(device) => Clocks::Cuda(device.clock()?),
            },
        })
    }

    /// Bytes that copies within the device's memory read and write in a nanosecond, together: the most of a
    /// few tries.
    ///
    /// # Errors
    /// A device that is gone, or has no memory left for it.
    pub fn bandwidth(&self) -> Result<f64, Error> {
        let bytes = (self.listed.largest / 4).min(self.listed.memory / 16);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(COPIED);
        let (from, mut to) = (self.buffer(bytes)?, self.buffer(bytes)?);
        let (mut best, mut times) = (0.0_f64, 1_u32);
        for _ in 0..TRIES {
            let began = Instant::now();
            match (&self.inner, &from.inner, &mut to.inner) {
                (Inner::OpenCl(device), Memories::OpenCl(from), Memories::OpenCl(to)) => {
                    device.copy(from, to, bytes, times)?;
                }
                (Inner::Cuda(device), Memories::Cuda(from), Memories::Cuda(to)) => {
                    device.copy(from, to, bytes, times)?;
                }
                _ => return Err(self.foreign()),
            }
            let took = began.elapsed();
            #[expect(clippy::cast_precision_loss, reason = "less than 2^53 bytes")]
            let moved = 2.0 * bytes as f64 * f64::from(times);
            best = best.max(moved / (took.as_secs_f64() * 1e9));
            if took < SHORT {
                times *= 8;
            }
        }
        Ok(best)
    }

    /// A kernel that is to stay, by its place among the kernels, for batches of at most so many bytes there
    /// and back. The device was opened for it.
    ///
    /// # Errors
    /// As `lane`.
    pub fn standing(&self, kernel: usize, there: usize, back: usize) -> Result<Standing, Error> {
        self.holds(there.max(back))?;
        Standing::new(self, kernel, there.max(1), back.max(1))
    }

    /// Whether a batch's way can be recorded.
    ///
    /// # Errors
    /// What the device lacks for it.
    pub fn check_recording(&self) -> Result<(), Missing> {
        match &self.inner {
            Inner::OpenCl(device) => device.check_recording(),
            Inner::Cuda(_) => Ok(()),
        }
    }

    /// Writes to memory of the device, and waits until it is written.
    ///
    /// # Errors
    /// A device that is gone.
    ///
    /// # Panics
    /// Bytes beyond the buffer.
    pub fn write(&self, to: &mut Buffer, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= to.bytes), "within the buffer");
        if bytes.is_empty() {
            return Ok(());
        }
        match (&self.inner, &mut to.inner) {
            (Inner::OpenCl(device), Memories::OpenCl(to)) => device.write(to, at, bytes),
            (Inner::Cuda(device), Memories::Cuda(to)) => device.write(to, at, bytes),
            _ => Err(self.foreign()),
        }
    }

    /// Reads memory of the device.
    ///
    /// # Errors
    /// A device that is gone.
    ///
    /// # Panics
    /// Bytes beyond the buffer.
    pub fn read(&self, from: &Buffer, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let end = at.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= from.bytes),
            "within the buffer"
        );
        if bytes.is_empty() {
            return Ok(());
        }
        match (&self.inner, &from.inner) {
            (Inner::OpenCl(device), Memories::OpenCl(from)) => device.read(from, at, bytes),
            (Inner::Cuda(device), Memories::Cuda(from)) => device.read(from, at, bytes),
            _ => Err(self.foreign()),
        }
    }

    fn foreign(&self) -> Error {
        Error::Failed {
            device: self.listed.to_string(),
            call: "reaching a buffer",
            why: "it is another device's".to_owned(),
        }
    }

    fn holds(&self, bytes: usize) -> Result<(), Error> {
        if bytes as u64 <= self.listed.largest {
            return Ok(());
        }
        Err(Error::Memory {
            device: self.listed.to_string(),
            bytes,
            largest: self.listed.largest,
        })
    }
}

impl Buffer {
    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
