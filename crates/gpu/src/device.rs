//! A device with kernels, and its memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::Missing;

use crate::lane::Lane;
use crate::times::{Clock, Clocks};
use crate::{Backend, DeviceInfo, Error, Memory, PersistentKernel, cuda, opencl};

/// Bytes of a copy within a device: source and destination together are larger than its caches. And the
/// number of tries.
const COPY_BYTES: usize = 64 << 20;
const TRIES: usize = 4;
/// Shorter copies are repeated more often in a try, so that the time of the call does not matter.
const MIN_COPY_TIME: Duration = Duration::from_millis(1);

/// An open device and the kernels that were built for it. A clone is the same device.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) inner: Inner,
    info: Arc<DeviceInfo>,
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
    pub fn open(info: &DeviceInfo, source: &str, kernels: &[&'static str]) -> Result<Self, Error> {
        Self::open_for(info, source, kernels, false)
    }

    /// As `open`, for kernels of which some are persistent: see [`Device::persistent_kernel`].
    ///
    /// # Errors
    /// As `open`; a device without support for persistent kernels.
    pub fn open_persistent(
        info: &DeviceInfo,
        source: &str,
        kernels: &[&'static str],
    ) -> Result<Self, Error> {
        Self::open_for(info, source, kernels, true)
    }

    fn open_for(
        info: &DeviceInfo,
        source: &str,
        kernels: &[&'static str],
        persistent: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            inner: match info.backend {
                Backend::OpenCl => {
                    let device = opencl::Device::open(info, source, kernels, persistent)?;
                    Inner::OpenCl(Arc::new(device))
                }
                Backend::Cuda => Inner::Cuda(Arc::new(cuda::Device::open(info, source, kernels)?)),
            },
            info: Arc::new(info.clone()),
        })
    }

    /// The device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Memory of `bytes` bytes, at least one.
    ///
    /// # Errors
    /// More than it has, at all or in one piece.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        let bytes = bytes.max(1);
        self.check_size(bytes)?;
        Ok(Buffer {
            inner: match &self.inner {
                Inner::OpenCl(device) => Memories::OpenCl(device.buffer(bytes)?),
                Inner::Cuda(device) => Memories::Cuda(device.buffer(bytes)?),
            },
            bytes,
        })
    }

    /// A lane for batches of at most `there` bytes to the device and `back` bytes from it.
    ///
    /// # Errors
    /// No memory, of the host or of the device.
    pub fn lane(&self, memory: Memory, there: usize, back: usize) -> Result<Lane, Error> {
        self.check_size(there.max(back))?;
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
        self.check_size(there.max(back))?;
        Lane::new(self, memory, (there.max(1), back.max(1)), Some(clock))
    }

    /// A clock for timed lanes. CUDA's times count from this call.
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
        let bytes = (self.info.largest / 4).min(self.info.memory / 16);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(COPY_BYTES);
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
                _ => return Err(self.wrong_device()),
            }
            let took = began.elapsed();
            #[expect(clippy::cast_precision_loss, reason = "less than 2^53 bytes")]
            let moved = 2.0 * bytes as f64 * f64::from(times);
            best = best.max(moved / (took.as_secs_f64() * 1e9));
            if took < MIN_COPY_TIME {
                times *= 8;
            }
        }
        Ok(best)
    }

    /// Kernel number `kernel` as a persistent one, for batches of at most `there` bytes of input and `back`
    /// bytes of output. The device was opened by `open_persistent`.
    ///
    /// # Errors
    /// As `lane`.
    pub fn persistent_kernel(
        &self,
        kernel: usize,
        there: usize,
        back: usize,
    ) -> Result<PersistentKernel, Error> {
        self.check_size(there.max(back))?;
        PersistentKernel::new(self, kernel, there.max(1), back.max(1))
    }

    /// Whether a batch's way can be recorded.
    ///
    /// # Errors
    /// The device lacks something for it.
    pub fn check_recording(&self) -> Result<(), Missing> {
        match &self.inner {
            Inner::OpenCl(device) => opencl::Recording::check(device),
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
            _ => Err(self.wrong_device()),
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
            _ => Err(self.wrong_device()),
        }
    }

    fn wrong_device(&self) -> Error {
        Error::Failed {
            device: self.info.to_string(),
            call: "reaching a buffer",
            why: "it is another device's".to_owned(),
        }
    }

    fn check_size(&self, bytes: usize) -> Result<(), Error> {
        if bytes as u64 <= self.info.largest {
            return Ok(());
        }
        Err(Error::Memory {
            device: self.info.to_string(),
            bytes,
            largest: self.info.largest,
        })
    }
}

impl Buffer {
    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
