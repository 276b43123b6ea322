//! A stream, and the memory at both of its ends.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;

use super::event::{Clock, Event};
use super::graph::Graph;
use super::memory::{Buffer, Pinned};
use super::stream::Stream;
use super::{Context, Device, Function};
use crate::device::Memories;
use crate::lane::{Argument, Launch};
use crate::times::{Part, Times};
use crate::{Error, Memory};

/// Threads of a block.
pub(super) const BLOCK: c_uint = 128;

/// The value of an argument. The driver reads it at the launch.
#[derive(Debug)]
pub(super) enum KernelArgument {
    Address(CUdeviceptr),
    Number(u32),
}

impl KernelArgument {
    pub(super) fn pointer(&mut self) -> *mut c_void {
        match self {
            Self::Address(address) => (&raw mut *address).cast(),
            Self::Number(number) => (&raw mut *number).cast(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    context: Arc<Context>,
    kernels: Vec<Function>,
    /// Goes first, because what is on the way uses the ends.
    stream: Stream,
    input: End,
    output: End,
    timed: Option<BatchTimer>,
}

/// The times of a lane's last batch.
#[derive(Debug)]
struct BatchTimer {
    clock: Clock,
    /// Before it and after it.
    spans: Vec<(Part, Event, Event)>,
}

/// Memory at one end of a lane: as the device has it, and as the host does.
#[derive(Debug)]
enum End {
    Pageable(Buffer, Vec<u8>),
    Pinned(Buffer, Pinned),
    Mapped(CUdeviceptr, Pinned),
}

impl Lane {
    pub(crate) fn new(
        device: &Device,
        memory: Memory,
        (there, back): (usize, usize),
        clock: Option<Clock>,
    ) -> Result<Self, Error> {
        let context = &device.context;
        let (input, output) = (
            End::new(context, memory, there)?,
            End::new(context, memory, back)?,
        );
        Ok(Self {
            stream: Stream::new(context)?,
            context: Arc::clone(context),
            kernels: device.kernels.clone(),
            input,
            output,
            timed: clock.map(|clock| BatchTimer {
                clock,
                spans: Vec::new(),
            }),
        })
    }

    /// Nothing is on the way.
    pub(crate) fn input(&mut self) -> &mut [u8] {
        self.input.host()
    }

    /// # Safety
    /// As the crate's [`crate::Lane::run`].
    pub(crate) unsafe fn run(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<(), Error> {
        self.context.enter()?;
        // SAFETY: the caller's.
        unsafe { self.enqueue(launches, there, back) }
    }

    /// Records what `run` would do, for `replay`.
    ///
    /// # Safety
    /// As the crate's [`crate::Lane::record`].
    pub(crate) unsafe fn record(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<Graph, Error> {
        self.context.enter()?;
        // Another handle of the same stream: `enqueue` borrows the lane.
        let (stream, context) = (self.stream.handle(), Arc::clone(&self.context));
        Graph::record(stream, &context, || {
            // SAFETY: the caller's.
            unsafe { self.enqueue(launches, there, back) }
        })
    }

    /// # Safety
    /// As the crate's [`crate::Lane::replay`].
    pub(crate) unsafe fn replay(&mut self, graph: &Graph) -> Result<(), Error> {
        self.context.enter()?;
        // SAFETY: the caller's.
        unsafe { graph.launch(self.stream.handle()) }
    }

    /// # Safety
    /// As `run`.
    unsafe fn enqueue(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<(), Error> {
        if let Some(timed) = &mut self.timed {
            timed.spans.clear();
        }
        let begun = self.mark(there > 0 && self.input.is_copied())?;
        let (to, from) = (self.input.address(), self.input.copied());
        if let Some(from) = from.filter(|_| there > 0) {
            // SAFETY: within both ends; these bytes are not written before the lane has waited, which also happens
            // when it is dropped.
            let sent =
                unsafe { result::memcpy_htod_async(to, &from[..there], self.stream.handle()) };
            sent.map_err(self.context.failed("sending a batch"))?;
            self.note(Part::Upload, begun)?;
        }
        for launch in launches {
            let begun = self.mark(true)?;
            // SAFETY: the caller's.
            unsafe { self.launch(launch)? };
            self.note(Part::Kernel, begun)?;
        }
        let begun = self.mark(back > 0 && self.output.is_copied())?;
        let (from, to) = (self.output.address(), self.output.copied());
        if let Some(to) = to.filter(|_| back > 0) {
            // SAFETY: as above, and the bytes are not read.
            let fetched =
                unsafe { result::memcpy_dtoh_async(&mut to[..back], from, self.stream.handle()) };
            fetched.map_err(self.context.failed("fetching a batch"))?;
            self.note(Part::Download, begun)?;
        }
        Ok(())
    }

    /// An event of now, where it is timed and something is to be.
    fn mark(&self, something: bool) -> Result<Option<Event>, Error> {
        if self.timed.is_none() || !something {
            return Ok(None);
        }
        let event = Event::new(&self.context)?;
        // SAFETY: the stream is there as long as this.
        unsafe { event.record(self.stream.handle())? };
        Ok(Some(event))
    }

    fn note(&mut self, part: Part, begun: Option<Event>) -> Result<(), Error> {
        let ended = self.mark(true)?;
        if let (Some(timed), Some(begun), Some(ended)) = (&mut self.timed, begun, ended) {
            timed.spans.push((part, begun, ended));
        }
        Ok(())
    }

    pub(crate) fn times(&self) -> Result<Times, Error> {
        let mut times = Times::default();
        if let Some(timed) = &self.timed {
            for (part, begun, ended) in &timed.spans {
                let [begun, ended] = [timed.clock.until(begun)?, timed.clock.until(ended)?];
                times.add(*part, begun..ended);
            }
        }
        Ok(times)
    }

    /// # Safety
    /// As `run`.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), Error> {
        let arguments = launch.arguments.iter().map(|argument| match argument {
            Argument::Input => KernelArgument::Address(self.input.address()),
            Argument::Output => KernelArgument::Address(self.output.address()),
            Argument::Buffer(buffer) => match &buffer.inner {
                Memories::Cuda(buffer) => KernelArgument::Address(buffer.address(0)),
                // The memory of another device has no address here.
                Memories::OpenCl(_) => KernelArgument::Address(0),
            },
            Argument::Number(number) => KernelArgument::Number(*number),
            // No lane has one: nowhere.
            Argument::Doorbell => KernelArgument::Address(0),
        });
        let mut arguments: Vec<KernelArgument> = arguments.collect();
        let pointers = arguments.iter_mut().map(KernelArgument::pointer);
        let mut pointers: Vec<*mut c_void> = pointers.collect();
        let blocks = c_uint::try_from(launch.items).unwrap_or(c_uint::MAX);
        // SAFETY: the arguments are the kernel's parameters, and what it reaches is the caller's word.
        let launched = unsafe {
            result::launch_kernel(
                self.kernels[launch.kernel].0,
                (blocks.div_ceil(BLOCK), 1, 1),
                (BLOCK, 1, 1),
                0,
                self.stream.handle(),
                &mut pointers,
            )
        };
        launched.map_err(self.context.failed("launching a kernel"))
    }

    pub(crate) fn wait(&mut self, back: usize) -> Result<&[u8], Error> {
        self.stream.wait()?;
        Ok(&self.output.host()[..back])
    }
}

impl End {
    fn new(context: &Arc<Context>, memory: Memory, bytes: usize) -> Result<Self, Error> {
        Ok(match memory {
            Memory::Pageable => Self::Pageable(Buffer::new(context, bytes)?, vec![0; bytes]),
            Memory::Pinned => {
                Self::Pinned(Buffer::new(context, bytes)?, Pinned::new(context, bytes)?)
            }
            Memory::Mapped => {
                let pinned = Pinned::new(context, bytes)?;
                Self::Mapped(pinned.address()?, pinned)
            }
        })
    }

    fn address(&self) -> CUdeviceptr {
        match self {
            Self::Pageable(buffer, _) | Self::Pinned(buffer, _) => buffer.address(0),
            Self::Mapped(address, _) => *address,
        }
    }

    fn host(&mut self) -> &mut [u8] {
        match self {
            Self::Pageable(_, bytes) => bytes,
            Self::Pinned(_, pinned) | Self::Mapped(_, pinned) => pinned.bytes_mut(),
        }
    }

    /// Whether host and device have copies of their own.
    fn is_copied(&self) -> bool {
        !matches!(self, Self::Mapped(..))
    }

    /// The host's copy, if the device does not use the same memory.
    fn copied(&mut self) -> Option<&mut [u8]> {
        self.is_copied().then(|| self.host())
    }
}
