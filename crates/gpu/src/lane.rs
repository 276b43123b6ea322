//! One batch after the other to a device and back: written by the host, worked on by kernels, read by
//! the host. Several lanes have as many batches on the way at once.

use crate::device::Inner;
use crate::times::{Clock, Clocks, Times};
use crate::{Buffer, Device, Error, Memory, cuda, opencl};

/// A way to a device, for one batch at a time.
#[derive(Debug)]
pub struct Lane {
    inner: Kinds,
    there: usize,
    back: usize,
    /// Bytes of answers that are on the way.
    expected: Option<usize>,
}

#[derive(Debug)]
enum Kinds {
    OpenCl(opencl::Lane),
    Cuda(cuda::Lane),
}

/// A batch's way that is recorded, and taken again by one call. It belongs to the lane that it was recorded
/// in.
#[derive(Debug)]
pub struct Recording {
    inner: Recordings,
    back: usize,
}

#[derive(Debug)]
enum Recordings {
    OpenCl(opencl::Recording),
    Cuda(cuda::Graph),
}

/// A kernel over a batch's items.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Its place among the kernels that the device was opened with.
    pub kernel: usize,
    /// Work items that there are at least; there can be more, up to a multiple of the group.
    pub items: usize,
    pub arguments: &'a [Argument<'a>],
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// The input that the host wrote.
    Input,
    /// The output that the host will read.
    Output,
    Buffer(&'a Buffer),
    Number(u32),
    /// The words through which a persistent kernel learns of batches.
    Doorbell,
}

impl Lane {
    pub(crate) fn new(
        device: &Device,
        memory: Memory,
        (there, back): (usize, usize),
        clock: Option<&Clock>,
    ) -> Result<Self, Error> {
        let bytes = (there, back);
        Ok(Self {
            inner: match &device.inner {
                Inner::OpenCl(device) => {
                    let device = device.clone();
                    Kinds::OpenCl(opencl::Lane::new(device, memory, bytes, clock.is_some())?)
                }
                Inner::Cuda(device) => {
                    let clock = clock.and_then(|clock| match &clock.inner {
                        Clocks::Cuda(clock) => Some(clock.clone()),
                        Clocks::OpenCl => None,
                    });
                    Kinds::Cuda(cuda::Lane::new(device, memory, bytes, clock)?)
                }
            },
            there,
            back,
            expected: None,
        })
    }

    /// The memory for the next batch's input. Waits for the previous batch.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn input(&mut self) -> Result<&mut [u8], Error> {
        self.wait()?;
        match &mut self.inner {
            Kinds::OpenCl(lane) => lane.input(),
            Kinds::Cuda(lane) => Ok(lane.input()),
        }
    }

    /// Sends the first `there` bytes of the input, has kernels work on them one after the other, and
    /// fetches the first `back` bytes of the output, all of which goes on after this returns.
    ///
    /// # Errors
    /// A device that is gone.
    ///
    /// # Panics
    /// More bytes than the lane is for; before the batch before was waited for.
    ///
    /// # Safety
    /// Buffers are this device's. The kernels have these parameters, and reach nothing but what the arguments are: of input and output
    /// as many bytes as here, and of a buffer what is in it. No buffer among
    /// the arguments is written to before this batch has been waited for.
    pub unsafe fn run(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<(), Error> {
        assert!(there <= self.there && back <= self.back, "within the lane");
        assert!(self.expected.is_none(), "a batch at a time");
        self.expected = Some(back);
        match &mut self.inner {
            // SAFETY: the caller's.
            Kinds::OpenCl(lane) => unsafe { lane.run(launches, there, back) },
            // SAFETY: the caller's.
            Kinds::Cuda(lane) => unsafe { lane.run(launches, there, back) },
        }
    }

    /// Records what [`Lane::run`] would do, and does nothing of it.
    ///
    /// # Errors
    /// A device that cannot: see [`Device::check_recording`].
    ///
    /// # Panics
    /// As `run`.
    ///
    /// # Safety
    /// As `run`, for each time that it is replayed.
    pub unsafe fn record(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<Recording, Error> {
        assert!(there <= self.there && back <= self.back, "within the lane");
        assert!(self.expected.is_none(), "a batch at a time");
        let inner = match &mut self.inner {
            Kinds::OpenCl(lane) => {
                // SAFETY: the caller's.
                Recordings::OpenCl(unsafe { opencl::Recording::of(lane, launches, there, back)? })
            }
            // SAFETY: the caller's.
            Kinds::Cuda(lane) => Recordings::Cuda(unsafe { lane.record(launches, there, back)? }),
        };
        Ok(Recording { inner, back })
    }

    /// Does what was recorded in this lane.
    ///
    /// # Errors
    /// A device that is gone.
    ///
    /// # Panics
    /// Before the batch before was waited for; a recording of another kind of device.
    ///
    /// # Safety
    /// It was recorded in this lane, and the rest as for `run` with what was recorded.
    pub unsafe fn replay(&mut self, recording: &Recording) -> Result<(), Error> {
        assert!(self.expected.is_none(), "a batch at a time");
        self.expected = Some(recording.back);
        match (&mut self.inner, &recording.inner) {
            // SAFETY: the caller's.
            (Kinds::OpenCl(lane), Recordings::OpenCl(recording)) => unsafe {
                recording.replay(lane)
            },
            // SAFETY: the caller's.
            (Kinds::Cuda(lane), Recordings::Cuda(graph)) => unsafe { lane.replay(graph) },
            _ => panic!("a recording of another kind of device"),
        }
    }

    /// Waits for the batch that is on the way; its output, which is nothing where none is.
    ///
    /// # Errors
    /// A device that is gone.
    pub fn wait(&mut self) -> Result<&[u8], Error> {
        let back = self.expected.take().unwrap_or(0);
        match &mut self.inner {
            Kinds::OpenCl(lane) => lane.wait(back),
            Kinds::Cuda(lane) => lane.wait(back),
        }
    }

    /// The times of the last batch that was [`run`](Self::run), once it was waited for; none for a lane that
    /// is not timed.
    ///
    /// # Errors
    /// A device that is gone.
    ///
    /// # Panics
    /// Before the batch was waited for.
    pub fn times(&self) -> Result<Times, Error> {
        assert!(self.expected.is_none(), "it is on the way");
        match &self.inner {
            Kinds::OpenCl(lane) => lane.times(),
            Kinds::Cuda(lane) => lane.times(),
        }
    }
}
