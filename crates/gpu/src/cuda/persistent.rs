//! A persistent kernel, and the memory of the host that it reads and writes.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use cudarc::driver::result;
use cudarc::driver::sys::{CUresult, cuStreamQuery};
use datapath::Missing;

use super::lane::{BLOCK, KernelArgument};
use super::memory::Pinned;
use super::stream::Stream;
use super::{Context, Device, Function};
use crate::device::Memories;
use crate::lane::Argument;
use crate::{Error, persistent};

/// One of the persistent kernels that fit a device at once, each with a block on every multiprocessor. One more
/// would wait until another ends.
#[derive(Debug)]
struct OccupancySlot(Arc<AtomicUsize>);

impl OccupancySlot {
    fn take(device: &Device, kernel: Function) -> Result<Self, Error> {
        let context = &device.context;
        context.enter()?;
        let block = c_int::try_from(BLOCK).unwrap_or(c_int::MAX);
        // SAFETY: a kernel of a module that is there as long as its context.
        let fits =
            unsafe { result::occupancy::max_active_block_per_multiprocessor(kernel.0, block, 0) };
        let fits = fits.map_err(context.failed("asking how many kernels fit"))?;
        let slot = Self(Arc::clone(&device.persistent));
        // Before it is known to be free: what goes gives it back.
        let taken = slot.0.fetch_add(1, Ordering::Relaxed);
        if taken < usize::try_from(fits).unwrap_or_default() {
            return Ok(slot);
        }
        let name = &context.name;
        Err(Error::Missing(Missing::new(
            format!(
                "{name} has room for {fits} kernels that stay, of which each stream of each thread has one"
            ),
            "use fewer --streams or --threads, or --launch stream or graph",
        )))
    }
}

impl Drop for OccupancySlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct PersistentKernel {
    context: Arc<Context>,
    kernel: Function,
    /// Goes first, because what is in it uses the rest.
    stream: Stream,
    doorbell: Pinned,
    input: Pinned,
    output: Pinned,
    groups: usize,
    prepared: Vec<KernelArgument>,
    _slot: OccupancySlot,
}

impl PersistentKernel {
    /// Items that a group works on at once.
    pub(crate) const GROUP: usize = BLOCK as usize;

    pub(crate) fn new(
        device: &Device,
        kernel: usize,
        there: usize,
        back: usize,
    ) -> Result<Self, Error> {
        let context = &device.context;
        let groups = device.multiprocessors.max(1);
        let bytes = persistent::numbers(groups) * size_of::<u32>();
        Ok(Self {
            _slot: OccupancySlot::take(device, device.kernels[kernel])?,
            doorbell: Pinned::new(context, bytes)?,
            input: Pinned::new(context, there)?,
            output: Pinned::new(context, back)?,
            stream: Stream::new(context)?,
            context: Arc::clone(context),
            kernel: device.kernels[kernel],
            groups,
            prepared: Vec::new(),
        })
    }

    pub(crate) fn grow(&mut self, there: usize, back: usize) -> Result<(), Error> {
        self.input = Pinned::new(&self.context, there)?;
        self.output = Pinned::new(&self.context, back)?;
        Ok(())
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    pub(crate) fn doorbell(&self) -> &[AtomicU32] {
        self.doorbell.numbers()
    }

    pub(crate) fn input(&mut self) -> &mut [u8] {
        self.input.bytes_mut()
    }

    pub(crate) fn output(&mut self) -> &[u8] {
        self.output.bytes_mut()
    }

    pub(crate) fn prepare(&mut self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        let passed = |argument: &Argument<'_>| {
            Ok(match argument {
                Argument::Doorbell => KernelArgument::Address(self.doorbell.address()?),
                Argument::Input => KernelArgument::Address(self.input.address()?),
                Argument::Output => KernelArgument::Address(self.output.address()?),
                Argument::Buffer(buffer) => KernelArgument::Address(match &buffer.inner {
                    Memories::Cuda(buffer) => buffer.address(0),
                    // The memory of another device has no address here.
                    Memories::OpenCl(_) => 0,
                }),
                Argument::Number(number) => KernelArgument::Number(*number),
            })
        };
        self.context.enter()?;
        self.prepared = arguments.iter().map(passed).collect::<Result<_, Error>>()?;
        Ok(())
    }

    pub(crate) fn launch(&mut self) -> Result<(), Error> {
        self.context.enter()?;
        let pointers = self.prepared.iter_mut().map(KernelArgument::pointer);
        let mut pointers: Vec<*mut c_void> = pointers.collect();
        let blocks = c_uint::try_from(self.groups).unwrap_or(c_uint::MAX);
        // SAFETY: the arguments are the kernel's parameters, and what it reaches is the word of who prepared
        // them.
        let launched = unsafe {
            result::launch_kernel(
                self.kernel.0,
                (blocks, 1, 1),
                (BLOCK, 1, 1),
                0,
                self.stream.handle(),
                &mut pointers,
            )
        };
        launched.map_err(self.context.failed("launching a kernel that stays"))
    }

    pub(crate) fn is_running(&self) -> Result<bool, Error> {
        self.context.enter()?;
        // SAFETY: the stream is there.
        match unsafe { cuStreamQuery(self.stream.handle()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(true),
            asked => {
                let failed = self.context.failed("waiting");
                asked.result().map_err(failed).map(|()| false)
            }
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.stream.wait()
    }
}
