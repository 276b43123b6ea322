//! A persistent kernel: it stays on the device and polls a doorbell for batches. The doorbell, the input and
//! the output are in memory that host and device both see, so a batch needs no call.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::device::Inner;
use crate::{Argument, Device, Error, cuda, opencl};

/// Indices of the doorbell's words, each in a cache line of its own: the requested batch, the launch whose
/// groups have to exit, the last launch, and for each group the last batch that it has done.
/// crates/router/gpu/persist.h is the twin.
const REQUEST: usize = 0;
const EXIT: usize = 16;
const LAUNCH: usize = 32;
const DONE: usize = 48;
const CACHE_LINE: usize = 16;

/// Bytes of device memory through which the first group broadcasts the doorbell to the others. They are
/// zeroed before the first launch.
pub const BROADCAST_BYTES: usize = LAUNCH * size_of::<u32>();

/// Polls after which the thread yields: a device that is a CPU may need this one.
const YIELD_INTERVAL: u32 = 1 << 7;
/// Polls after which the driver is asked whether the kernel still runs.
const LIVENESS_INTERVAL: u32 = 1 << 10;

/// A kernel that stays on the device.
#[derive(Debug)]
pub struct PersistentKernel {
    inner: Kinds,
    request: Request,
    /// The last one's number; 0 is none's.
    launch: u32,
    started: bool,
    /// Bytes of the answers that are on the way.
    expected: Option<usize>,
}

/// The last request: a batch's number, and how many groups take part in it. No batch has number 0.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    number: u16,
    groups: u16,
}

#[derive(Debug)]
enum Kinds {
    OpenCl(opencl::PersistentKernel),
    Cuda(cuda::PersistentKernel),
}

/// Words of a doorbell for this many groups.
pub(crate) fn numbers(groups: usize) -> usize {
    DONE + CACHE_LINE * groups
}

impl PersistentKernel {
    pub(crate) fn new(
        device: &Device,
        kernel: usize,
        there: usize,
        back: usize,
    ) -> Result<Self, Error> {
        let inner = match &device.inner {
            Inner::OpenCl(device) => {
                Kinds::OpenCl(opencl::PersistentKernel::new(device, kernel, there, back)?)
            }
            Inner::Cuda(device) => {
                Kinds::Cuda(cuda::PersistentKernel::new(device, kernel, there, back)?)
            }
        };
        Ok(Self {
            inner,
            request: Request::default(),
            launch: 0,
            started: false,
            expected: None,
        })
    }

    /// Makes room for batches of at most `there` bytes to the device and `back` bytes from it. The kernel must be
    /// started again.
    ///
    /// # Errors
    /// No memory; a device that is gone.
    pub fn grow(&mut self, there: usize, back: usize) -> Result<(), Error> {
        self.stop()?;
        match &mut self.inner {
            Kinds::OpenCl(kernel) => kernel.grow(there, back),
            Kinds::Cuda(kernel) => kernel.grow(there, back),
        }
    }

    /// The memory for the next batch's input.
    ///
    /// # Panics
    /// Before the batch before was waited for.
    pub fn input(&mut self) -> &mut [u8] {
        assert!(self.expected.is_none(), "a batch at a time");
        self.inner.input()
    }

    /// Has the kernel stay on the device with these arguments, in place of those before.
    ///
    /// # Errors
    /// A device that is gone.
    ///
    /// # Safety
    /// The conditions of [`crate::Lane::run`] hold for every batch until the kernel is stopped.
    pub unsafe fn start(&mut self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        self.stop()?;
        // SAFETY: the caller's.
        unsafe { self.inner.prepare(arguments)? };
        self.launch()?;
        self.started = true;
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Error> {
        self.launch = self.launch.checked_add(1).unwrap_or(1);
        self.doorbell(LAUNCH).store(self.launch, Ordering::Release);
        // A number comes again after 65535 batches: of the last one alone it says something.
        for group in 0..self.inner.groups() {
            let done = self.doorbell(DONE + CACHE_LINE * group);
            if done.load(Ordering::Acquire) != self.request.word() {
                done.store(0, Ordering::Release);
            }
        }
        self.inner.launch()
    }

    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Starts the work on the written batch of about `items` items, and returns before it ends. `back` bytes
    /// come back.
    ///
    /// # Panics
    /// Before it was started; before the batch before was waited for.
    pub fn ring(&mut self, items: usize, back: usize) {
        assert!(self.started && self.expected.is_none(), "a batch at a time");
        self.expected = Some(back);
        let groups = items.div_ceil(self.inner.group()).min(self.inner.groups());
        self.request = Request {
            number: self.request.number.checked_add(1).unwrap_or(1),
            groups: u16::try_from(groups).unwrap_or(u16::MAX).max(1),
        };
        self.doorbell(REQUEST)
            .store(self.request.word(), Ordering::Release);
    }

    /// Waits for the batch that is on the way; its output, which is nothing where none is.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn wait(&mut self) -> Result<&[u8], Error> {
        let back = self.expected.unwrap_or(0);
        let mut polls = 0_u32;
        while self.expected.is_some() && !self.is_done() {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(LIVENESS_INTERVAL) {
                self.relaunch_if_ended()?;
            }
            if polls.is_multiple_of(YIELD_INTERVAL) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
        self.expected = None;
        Ok(&self.inner.output()[..back])
    }

    /// Waits for the batch that is on the way and ends the kernel, which then does not use its arguments any
    /// more.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn stop(&mut self) -> Result<(), Error> {
        if !self.started {
            return Ok(());
        }
        self.wait()?;
        self.doorbell(EXIT).store(self.launch, Ordering::Release);
        self.inner.finish()?;
        self.started = false;
        Ok(())
    }

    /// Launches the kernel again if it has ended: groups that wait for a batch for too long exit, and all
    /// groups exit if one does.
    fn relaunch_if_ended(&mut self) -> Result<(), Error> {
        if !self.inner.is_running()? && !self.is_done() {
            self.launch()?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let word = self.request.word();
        let done = |group| {
            self.doorbell(DONE + CACHE_LINE * group)
                .load(Ordering::Acquire)
                == word
        };
        (0..usize::from(self.request.groups)).all(done)
    }

    fn doorbell(&self, number: usize) -> &AtomicU32 {
        &self.inner.doorbell()[number]
    }
}

impl Drop for PersistentKernel {
    fn drop(&mut self) {
        // The kernel reads and writes the host's memory: it leaves, or the device is gone.
        self.doorbell(EXIT).store(self.launch, Ordering::Release);
        let _ = self.inner.finish();
    }
}

impl Request {
    /// The word that groups read.
    fn word(self) -> u32 {
        u32::from(self.number) << 16 | u32::from(self.groups)
    }
}

impl Kinds {
    fn groups(&self) -> usize {
        match self {
            Self::OpenCl(kernel) => kernel.groups(),
            Self::Cuda(kernel) => kernel.groups(),
        }
    }

    /// Items that a group works on at once.
    fn group(&self) -> usize {
        match self {
            Self::OpenCl(kernel) => kernel.group(),
            Self::Cuda(_) => cuda::PersistentKernel::GROUP,
        }
    }

    fn doorbell(&self) -> &[AtomicU32] {
        match self {
            Self::OpenCl(kernel) => kernel.doorbell(),
            Self::Cuda(kernel) => kernel.doorbell(),
        }
    }

    fn input(&mut self) -> &mut [u8] {
        match self {
            Self::OpenCl(kernel) => kernel.input(),
            Self::Cuda(kernel) => kernel.input(),
        }
    }

    fn output(&mut self) -> &[u8] {
        match self {
            Self::OpenCl(kernel) => kernel.output(),
            Self::Cuda(kernel) => kernel.output(),
        }
    }

    /// # Safety
    /// As `PersistentKernel::start`.
    unsafe fn prepare(&mut self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        match self {
            // SAFETY: the caller's.
            Self::OpenCl(kernel) => unsafe { kernel.prepare(arguments) },
            Self::Cuda(kernel) => kernel.prepare(arguments),
        }
    }

    /// Launches the kernel with the arguments of `prepare`.
    fn launch(&mut self) -> Result<(), Error> {
        match self {
            Self::OpenCl(kernel) => kernel.launch(),
            Self::Cuda(kernel) => kernel.launch(),
        }
    }

    /// Whether the kernel still runs.
    fn is_running(&self) -> Result<bool, Error> {
        match self {
            Self::OpenCl(kernel) => kernel.is_running(),
            Self::Cuda(kernel) => kernel.is_running(),
        }
    }

    /// Waits until the kernel has ended.
    fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::OpenCl(kernel) => kernel.finish(),
            Self::Cuda(kernel) => kernel.finish(),
        }
    }
}
