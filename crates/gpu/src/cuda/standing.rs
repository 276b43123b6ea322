//! A kernel that stays, and the memory of the host that it reads and writes.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use cudarc::driver::result;
use cudarc::driver::sys::{CUresult, cuStreamQuery};

use super::lane::{BLOCK, Passed};
use super::memory::Pinned;
use super::stream::Stream;
use super::{Context, Device, Function};
use crate::device::Memories;
use crate::lane::Argument;
use crate::{Error, standing};

/// Blocks for each multiprocessor.
const BLOCKS: usize = 4;

#[derive(Debug)]
pub(crate) struct Standing {
    context: Arc<Context>,
    kernel: Function,
    /// Goes first, because what is in it uses the rest.
    stream: Stream,
    bell: Pinned,
    input: Pinned,
    output: Pinned,
    groups: usize,
    prepared: Vec<Passed>,
}

impl Standing {
    pub(crate) fn new(
        device: &Device,
        kernel: usize,
        there: usize,
        back: usize,
    ) -> Result<Self, Error> {
        let context = &device.context;
        let groups = BLOCKS * device.multiprocessors.max(1);
        let bytes = standing::numbers(groups) * size_of::<u32>();
        Ok(Self {
            bell: Pinned::new(context, bytes)?,
            input: Pinned::new(context, there)?,
            output: Pinned::new(context, back)?,
            stream: Stream::new(context)?,
            context: Arc::clone(context),
            kernel: device.kernels[kernel],
            groups,
            prepared: Vec::new(),
        })
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    pub(crate) fn bell(&self) -> &[AtomicU32] {
        self.bell.numbers()
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
                Argument::Bell => Passed::Address(self.bell.address()?),
                Argument::Input => Passed::Address(self.input.address()?),
                Argument::Output => Passed::Address(self.output.address()?),
                Argument::Buffer(buffer) => Passed::Address(match &buffer.inner {
                    Memories::Cuda(buffer) => buffer.address(0),
                    // Of another device: nowhere.
                    Memories::OpenCl(_) => 0,
                }),
                Argument::Number(number) => Passed::Number(*number),
            })
        };
        self.context.enter()?;
        self.prepared = arguments.iter().map(passed).collect::<Result<_, Error>>()?;
        Ok(())
    }

    pub(crate) fn launch(&mut self) -> Result<(), Error> {
        self.context.enter()?;
        let pointers = self.prepared.iter_mut().map(Passed::pointer);
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

    pub(crate) fn is_there(&self) -> Result<bool, Error> {
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
