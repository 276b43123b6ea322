//! A kernel that stays on the device and is told of batches by a bell, which lies in memory that host and
//! device both see, as do input and output: no call is made for a batch.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::device::Inner;
use crate::{Argument, Device, Error, cuda, opencl};

/// Numbers of the bell, each in a cache line of its own: the batch that is rung for, the launch whose groups
/// shall leave, the last launch, and of each group the batch that it is done with.
/// crates/router/gpu/persist.h is the twin.
const RUNG: usize = 0;
const LEAVE: usize = 16;
const LAUNCH: usize = 32;
const DONE: usize = 48;
const LINE: usize = 16;

/// Bytes of memory of the device by which a kernel's groups tell each other, zeroed before its first launch.
pub const RELAY: usize = LAUNCH * size_of::<u32>();

/// Looks at what groups say, after which others may run: a device that is a CPU may need this one.
const OFTEN: u32 = 1 << 7;
/// And after which it is asked whether the kernel is still there.
const SELDOM: u32 = 1 << 10;

/// A kernel that stays.
#[derive(Debug)]
pub struct Standing {
    inner: Kinds,
    rung: Rung,
    /// The last one's number; 0 is none's.
    launch: u32,
    started: bool,
    /// Bytes of the answers that are on the way.
    expected: Option<usize>,
}

/// What was rung for last: a batch's number, and how many groups take part in it. No batch's number is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Rung {
    number: u16,
    groups: u16,
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
            inner,
            rung: Rung::default(),
            launch: 0,
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
        self.launch()?;
        self.started = true;
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Error> {
        self.launch = self.launch.checked_add(1).unwrap_or(1);
        self.bell(LAUNCH).store(self.launch, Ordering::Release);
        // A number comes again after 65535 batches: of the last one alone it says something.
        for group in 0..self.inner.groups() {
            let done = self.bell(DONE + LINE * group);
            if done.load(Ordering::Acquire) != self.rung.word() {
                done.store(0, Ordering::Release);
            }
        }
        self.inner.launch()
    }

    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Has it work on what was written, which is about so many items; that goes on after this returns. So
    /// many bytes come back.
    ///
    /// # Panics
    /// Before it was started; before the batch before was waited for.
    pub fn ring(&mut self, items: usize, back: usize) {
        assert!(self.started && self.expected.is_none(), "a batch at a time");
        self.expected = Some(back);
        let groups = items.div_ceil(self.inner.group()).min(self.inner.groups());
        self.rung = Rung {
            number: self.rung.number.checked_add(1).unwrap_or(1),
            groups: u16::try_from(groups).unwrap_or(u16::MAX).max(1),
        };
        self.bell(RUNG).store(self.rung.word(), Ordering::Release);
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
        self.bell(LEAVE).store(self.launch, Ordering::Release);
        self.inner.finish()?;
        self.started = false;
        Ok(())
    }

    /// Groups that waited in vain for long have left, all of them as soon as one did: they are called again.
    fn look_after(&mut self) -> Result<(), Error> {
        if !self.inner.is_there()? && !self.is_done() {
            self.launch()?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let word = self.rung.word();
        let done = |group| self.bell(DONE + LINE * group).load(Ordering::Acquire) == word;
        (0..usize::from(self.rung.groups)).all(done)
    }

    fn bell(&self, number: usize) -> &AtomicU32 {
        &self.inner.bell()[number]
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // The kernel reads and writes the host's memory: it leaves, or the device is gone.
        self.bell(LEAVE).store(self.launch, Ordering::Release);
        let _ = self.inner.finish();
    }
}

impl Rung {
    /// As groups read it.
    fn word(self) -> u32 {
        u32::from(self.number) << 16 | u32::from(self.groups)
    }
}

impl Kinds {
    fn groups(&self) -> usize {
        match self {
            Self::OpenCl(standing) => standing.groups(),
            Self::Cuda(standing) => standing.groups(),
        }
    }

    /// Items that a group works on at once.
    fn group(&self) -> usize {
        match self {
            Self::OpenCl(standing) => standing.group(),
            Self::Cuda(_) => cuda::Standing::GROUP,
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
