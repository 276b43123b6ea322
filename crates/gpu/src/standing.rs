//! A kernel that stays on the device and is told of batches by a bell, which lies in memory that host and
//! device both see, as do input and output: no call is made for a batch.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::device::Inner;
use crate::{Argument, Device, Error, cuda, opencl};

/// Numbers of the bell, each in a cache line of its own: the batch that is rung for, whether groups shall
/// leave, and of each group the batch that it is done with. crates/router/gpu/persist.h is the twin.
const RUNG: usize = 0;
const LEAVE: usize = 16;
const DONE: usize = 32;
const LINE: usize = 16;

/// Looks at what groups say, after which others may run: a device that is a CPU may need this one.
const OFTEN: u32 = 1 << 7;
/// And after which it is asked whether the kernel is still there.
const SELDOM: u32 = 1 << 10;

/// A kernel that stays.
#[derive(Debug)]
pub struct Standing {
    inner: Kinds,
    groups: usize,
    /// The last batch's number; 0 is none's.
    rung: u32,
    started: bool,
    /// Bytes of the answers that are on the way.
    expected: Option<usize>,
}

#[derive(Debug)]
enum Kinds {
    OpenCl(opencl::Standing),
    Cuda(cuda::Standing),
}

/// Numbers of a bell for so many groups.
pub(crate) fn numbers(groups: usize) -> usize {
    DONE + LINE * groups
}

impl Standing {
    pub(crate) fn new(
        device: &Device,
        kernel: usize,
        there: usize,
        back: usize,
    ) -> Result<Self, Error> {
        let inner = match &device.inner {
            Inner::OpenCl(device) => {
                Kinds::OpenCl(opencl::Standing::new(device, kernel, there, back)?)
            }
            Inner::Cuda(device) => Kinds::Cuda(cuda::Standing::new(device, kernel, there, back)?),
        };
        Ok(Self {
            groups: inner.groups(),
            inner,
            rung: 0,
            started: false,
            expected: None,
        })
    }

    /// Room for batches of at most so many bytes there and back. It is to be started once more.
    ///
    /// # Errors
    /// No memory; a device that is gone.
    pub fn grow(&mut self, there: usize, back: usize) -> Result<(), Error> {
        self.stop()?;
        match &mut self.inner {
            Kinds::OpenCl(standing) => standing.grow(there, back),
            Kinds::Cuda(standing) => standing.grow(there, back),
        }
    }

    /// Where a batch is written to.
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
    /// As [`crate::Lane::run`], of every batch until it is stopped.
    pub unsafe fn start(&mut self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        self.stop()?;
        // SAFETY: the caller's.
        unsafe { self.inner.prepare(arguments)? };
        self.bell(LEAVE).store(0, Ordering::Release);
        self.inner.launch()?;
        self.started = true;
        Ok(())
    }

    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Has it work on what was written, which goes on after this returns; so many bytes come back.
    ///
    /// # Panics
    /// Before it was started; before the batch before was waited for.
    pub fn ring(&mut self, back: usize) {
        assert!(self.started && self.expected.is_none(), "a batch at a time");
        self.expected = Some(back);
        self.rung = self.rung.checked_add(1).unwrap_or(1);
        self.bell(RUNG).store(self.rung, Ordering::Release);
    }

    /// Waits for the batch that is on the way; its output, which is nothing where none is.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn wait(&mut self) -> Result<&[u8], Error> {
        let back = self.expected.unwrap_or(0);
        let mut looks = 0_u32;
        while self.expected.is_some() && !self.is_done() {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(SELDOM) {
                self.look_after()?;
            }
            if looks.is_multiple_of(OFTEN) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
        self.expected = None;
        Ok(&self.inner.output()[..back])
    }

    /// Waits for the batch that is on the way, and has the kernel leave: what it was started with is its no
    /// more.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn stop(&mut self) -> Result<(), Error> {
        if !self.started {
            return Ok(());
        }
        self.wait()?;
        self.bell(LEAVE).store(1, Ordering::Release);
        self.inner.finish()?;
        self.started = false;
        Ok(())
    }

    /// Groups that waited in vain for long have left, all of them as soon as one did: they are called again.
    fn look_after(&mut self) -> Result<(), Error> {
        if !self.inner.is_there()? && !self.is_done() {
            self.bell(LEAVE).store(0, Ordering::Release);
            self.inner.launch()?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let done = |group| self.bell(DONE + LINE * group).load(Ordering::Acquire) == self.rung;
        (0..self.groups).all(done)
    }

    fn bell(&self, number: usize) -> &AtomicU32 {
        &self.inner.bell()[number]
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // The kernel reads and writes the host's memory: it leaves, or the device is gone.
        self.bell(LEAVE).store(1, Ordering::Release);
        let _ = self.inner.finish();
    }
}

impl Kinds {
    fn groups(&self) -> usize {
        match self {
            Self::OpenCl(standing) => standing.groups(),
            Self::Cuda(standing) => standing.groups(),
        }
    }

    fn bell(&self) -> &[AtomicU32] {
        match self {
            Self::OpenCl(standing) => standing.bell(),
            Self::Cuda(standing) => standing.bell(),
        }
    }

    fn input(&mut self) -> &mut [u8] {
        match self {
            Self::OpenCl(standing) => standing.input(),
            Self::Cuda(standing) => standing.input(),
        }
    }

    fn output(&mut self) -> &[u8] {
        match self {
            Self::OpenCl(standing) => standing.output(),
            Self::Cuda(standing) => standing.output(),
        }
    }

    /// # Safety
    /// As `Standing::start`.
    unsafe fn prepare(&mut self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        match self {
            // SAFETY: the caller's.
            Self::OpenCl(standing) => unsafe { standing.prepare(arguments) },
            Self::Cuda(standing) => standing.prepare(arguments),
        }
    }

    /// Of what was prepared, by the word of who prepared it.
    fn launch(&mut self) -> Result<(), Error> {
        match self {
            Self::OpenCl(standing) => standing.launch(),
            Self::Cuda(standing) => standing.launch(),
        }
    }

    /// Whether it has not left.
    fn is_there(&self) -> Result<bool, Error> {
        match self {
            Self::OpenCl(standing) => standing.is_there(),
            Self::Cuda(standing) => standing.is_there(),
        }
    }

    /// Waits until it has left.
    fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::OpenCl(standing) => standing.finish(),
            Self::Cuda(standing) => standing.finish(),
        }
    }
}
