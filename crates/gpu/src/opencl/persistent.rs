//! A persistent kernel, and the memory that it shares with the host: fine-grained, with atomics.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use datapath::Missing;
use opencl3::command_queue::CommandQueue;
use opencl3::device::{CL_DEVICE_SVM_ATOMICS, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, Device as ClDevice};
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::Kernel;
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, ClMem, svm_alloc, svm_free,
};
use opencl3::types::cl_uint;

use super::{Device, lane::GROUP, queue};
use crate::device::Memories;
use crate::lane::Argument;
use crate::{Error, Kind, persistent};

/// `CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES`, a bit of `CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES`.
const ALL_DEVICES: u64 = 1 << 6;

#[derive(Debug)]
pub(crate) struct PersistentKernel {
    device: Arc<Device>,
    queue: CommandQueue,
    kernel: Kernel,
    /// Work items of a group.
    group: usize,
    groups: usize,
    /// The event of the last launch.
    event: Option<Event>,
    doorbell: SvmBuffer,
    input: SvmBuffer,
    output: SvmBuffer,
}

/// Shared virtual memory of host and device.
#[derive(Debug)]
struct SvmBuffer {
    device: Arc<Device>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: what the pointer points to is its own, and moves with it.
unsafe impl Send for SvmBuffer {}

/// The compiler option for a persistent kernel, or what the device lacks for one.
pub(super) fn dialect(found: &ClDevice, name: &str) -> Result<&'static str, Missing> {
    let lacks = |what: &str| {
        let what =
            format!("{name} has no {what}, which a persistent kernel needs to learn of batches");
        Err(Missing::new(
            what,
            "use --launch stream or graph, or another driver",
        ))
    };
    let wanted = CL_DEVICE_SVM_FINE_GRAIN_BUFFER | CL_DEVICE_SVM_ATOMICS;
    if found.svm_mem_capability() & wanted != wanted {
        return lacks("fine-grained shared memory with atomics");
    }
    let version = found.version().unwrap_or_default();
    if version.starts_with("OpenCL 2.") {
        return Ok("-cl-std=CL2.0");
    }
    let atomics = found.atomic_memory_capabilities().unwrap_or(0);
    if !version.starts_with("OpenCL 3.") || atomics & ALL_DEVICES == 0 {
        return lacks("atomics that the host sees");
    }
    // It has it by its capabilities: not every compiler says so.
    Ok("-cl-std=CL3.0 -D__opencl_c_atomic_scope_all_devices=1")
}

impl PersistentKernel {
    pub(crate) fn new(
        device: &Arc<Device>,
        kernel: usize,
        there: usize,
        back: usize,
    ) -> Result<Self, Error> {
        let found = ClDevice::new(device.context.default_device());
        let kernel = Kernel::create(&device.program, device.kernels[kernel]);
        let kernel = kernel.map_err(device.failed("finding a kernel"))?;
        let most = kernel.get_work_group_size(found.id());
        let most = most.map_err(device.failed("asking for a kernel's group"))?;
        let units = found
            .max_compute_units()
            .map_err(device.failed("asking it"))? as usize;
        let groups = match device.kind {
            // The others are for what else is asked of it.
            Kind::Cpu => units.saturating_sub(1).max(1),
            // One for each, so that those of several streams fit beside each other.
            Kind::Gpu | Kind::Other => units.max(1),
        };
        let bytes = persistent::numbers(groups) * size_of::<u32>();
        Ok(Self {
            queue: queue(&device.context, false).map_err(device.failed("making a queue"))?,
            doorbell: SvmBuffer::new(device, bytes)?,
            input: SvmBuffer::new(device, there)?,
            output: SvmBuffer::new(device, back)?,
            device: Arc::clone(device),
            kernel,
            group: most.clamp(1, GROUP),
            groups,
            event: None,
        })
    }

    pub(crate) fn grow(&mut self, there: usize, back: usize) -> Result<(), Error> {
        self.input = SvmBuffer::new(&self.device, there)?;
        self.output = SvmBuffer::new(&self.device, back)?;
        Ok(())
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    pub(crate) fn group(&self) -> usize {
        self.group
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

    /// # Safety
    /// As the crate's [`crate::PersistentKernel::start`].
    pub(crate) unsafe fn prepare(&mut self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        let kernel = &self.kernel;
        let shared = |at, shared: &SvmBuffer| {
            let start = shared.start.as_ptr().cast::<c_void>();
            // SAFETY: shared memory, which the kernel's parameter is by the caller's word.
            unsafe { kernel.set_arg_svm_pointer(at, start) }
        };
        for (at, argument) in arguments.iter().enumerate() {
            let at = cl_uint::try_from(at).unwrap_or(cl_uint::MAX);
            let set = match argument {
                Argument::Doorbell => shared(at, &self.doorbell),
                Argument::Input => shared(at, &self.input),
                Argument::Output => shared(at, &self.output),
                // SAFETY: a buffer's handle, as the kernel's parameter is by the caller's word.
                Argument::Buffer(buffer) => unsafe {
                    match &buffer.inner {
                        Memories::OpenCl(buffer) => kernel.set_arg(at, &buffer.get()),
                        // The memory of another device has no address here.
                        Memories::Cuda(_) => kernel.set_arg(at, &ptr::null_mut::<c_void>()),
                    }
                },
                // SAFETY: a number, as above.
                Argument::Number(number) => unsafe { kernel.set_arg(at, number) },
            };
            set.map_err(self.device.failed("setting an argument"))?;
        }
        Ok(())
    }

    pub(crate) fn launch(&mut self) -> Result<(), Error> {
        let (items, group) = (self.groups * self.group, self.group);
        // SAFETY: all arguments are set; what the kernel reaches is the word of who prepared them.
        let launched = unsafe {
            let (items, group) = (&raw const items, &raw const group);
            let kernel = self.kernel.get();
            self.queue
                .enqueue_nd_range_kernel(kernel, 1, ptr::null(), items, group, &[])
        };
        let failed = "launching a kernel that stays";
        self.event = Some(launched.map_err(self.device.failed(failed))?);
        self.queue.flush().map_err(self.device.failed(failed))
    }

    pub(crate) fn is_running(&self) -> Result<bool, Error> {
        let Some(event) = &self.event else {
            return Ok(false);
        };
        let status = event.command_execution_status();
        let status = status.map_err(self.device.failed("waiting for a batch"))?.0;
        if status < 0 {
            let failed = self.device.failed("waiting for a batch");
            return Err(failed(opencl3::error_codes::ClError(status)));
        }
        Ok(status != CL_COMPLETE)
    }

    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let finished = self.queue.finish();
        finished.map_err(self.device.failed("waiting for a kernel that stays"))
    }
}

impl SvmBuffer {
    /// Zeroed.
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, Error> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS;
        const CACHE_LINE: cl_uint = 128;
        // SAFETY: the context is there.
        let start = unsafe { svm_alloc(device.context.get(), flags, bytes, CACHE_LINE) };
        let start = start
            .ok()
            .and_then(|start| NonNull::new(start.cast::<u8>()));
        let none = || Error::Memory {
            device: device.name.clone(),
            bytes,
            largest: device.largest,
        };
        let start = start.ok_or_else(none)?;
        // SAFETY: the allocation above has this many bytes.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self {
            device: Arc::clone(device),
            start,
            bytes,
        })
    }

    /// Nothing of it is on the way.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has this many bytes, and only this value accesses it while nothing is under way.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    fn numbers(&self) -> &[AtomicU32] {
        let start = self.start.as_ptr().cast::<AtomicU32>();
        // SAFETY: the memory is aligned to a cache line, has this many bytes, and is only accessed by atomics.
        unsafe { slice::from_raw_parts(start, self.bytes / size_of::<u32>()) }
    }
}

impl Drop for SvmBuffer {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast::<c_void>();
        // SAFETY: it was made once and goes once, when no kernel uses it.
        let _ = unsafe { svm_free(self.device.context.get(), start) };
    }
}
