//! Kernels that are recorded once and launched together by one call: what cl_khr_command_buffer has.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use datapath::Missing;
use libloading::Library;
use opencl3::error_codes::{CL_INVALID_VALUE, ClError};
use opencl3::types::{cl_command_queue, cl_event, cl_int, cl_kernel, cl_platform_id, cl_uint};

use super::{Device, Lane};
use crate::Error;
use crate::lane::Launch;

const EXTENSION: &str = "cl_khr_command_buffer";

type Handle = *mut c_void;
type Point = cl_uint;
type Find = unsafe extern "C" fn(cl_platform_id, *const c_char) -> *mut c_void;
type Create =
    unsafe extern "C" fn(cl_uint, *const cl_command_queue, *const u64, *mut cl_int) -> Handle;
type Finalize = unsafe extern "C" fn(Handle) -> cl_int;
type Enqueue = unsafe extern "C" fn(
    cl_uint,
    *mut cl_command_queue,
    Handle,
    cl_uint,
    *const cl_event,
    *mut cl_event,
) -> cl_int;
type Kernel = unsafe extern "C" fn(
    Handle,
    cl_command_queue,
    *const u64,
    cl_kernel,
    cl_uint,
    *const usize,
    *const usize,
    *const usize,
    cl_uint,
    *const Point,
    *mut Point,
    *mut c_void,
) -> cl_int;

/// The extension's calls.
#[derive(Clone, Copy, Debug)]
struct Calls {
    create: Create,
    kernel: Kernel,
    finalize: Finalize,
    enqueue: Enqueue,
    release: Finalize,
}

/// A recorded batch. Only the lane that recorded it can replay it.
#[derive(Debug)]
pub(crate) struct Recording {
    kernels: Vec<opencl3::kernel::Kernel>,
    calls: Calls,
    handle: Handle,
    there: usize,
    back: usize,
    /// The device of its queue.
    _device: Arc<Device>,
}

// SAFETY: any thread may use it, one after the other.
unsafe impl Send for Recording {}

impl Device {
    /// Whether batches can be recorded.
    pub(crate) fn check_recording(&self) -> Result<(), Missing> {
        self.calls().map(drop)
    }

    fn calls(&self) -> Result<Calls, Missing> {
        let lacks = || {
            let what = format!("{} has no {EXTENSION}", self.name);
            Missing::new(what, "use --launch stream, or another driver")
        };
        if !self
            .extensions
            .split_whitespace()
            .any(|name| name == EXTENSION)
        {
            return Err(lacks());
        }
        Calls::find(self.platform.0).ok_or_else(lacks)
    }
}

impl Calls {
    fn find(platform: cl_platform_id) -> Option<Self> {
        // SAFETY: the library has been loaded before, and runs nothing that it has not run then.
        let library = unsafe { Library::new("libOpenCL.so.1") }.ok()?;
        // SAFETY: of this type by OpenCL 1.2.
        let find = unsafe { library.get::<Find>("clGetExtensionFunctionAddressForPlatform") };
        let find = *find.ok()?;
        let of = |name: &CStr| {
            // SAFETY: a platform that is there, and a name.
            let address = unsafe { find(platform, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        // SAFETY: the calls are of these types by the extension, and are there as long as the driver.
        unsafe {
            Some(Self {
                create: std::mem::transmute::<*mut c_void, Create>(of(
                    c"clCreateCommandBufferKHR",
                )?),
                kernel: std::mem::transmute::<*mut c_void, Kernel>(of(
                    c"clCommandNDRangeKernelKHR",
                )?),
                finalize: std::mem::transmute::<*mut c_void, Finalize>(of(
                    c"clFinalizeCommandBufferKHR",
                )?),
                enqueue: std::mem::transmute::<*mut c_void, Enqueue>(of(
                    c"clEnqueueCommandBufferKHR",
                )?),
                release: std::mem::transmute::<*mut c_void, Finalize>(of(
                    c"clReleaseCommandBufferKHR",
                )?),
            })
        }
    }
}

impl Lane {
    /// Records what `run` would do, for `replay`.
    ///
    /// # Safety
    /// As the crate's [`crate::Lane::record`].
    pub(crate) unsafe fn record(
        &mut self,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<Recording, Error> {
        let calls = self.device.calls()?;
        let queue = self.queue.get();
        let mut status: cl_int = CL_INVALID_VALUE;
        // SAFETY: one queue, which is there; no properties.
        let handle = unsafe { (calls.create)(1, &raw const queue, ptr::null(), &raw mut status) };
        self.checked(status, "making a command buffer")?;
        let mut recording = Recording {
            kernels: Vec::new(),
            calls,
            handle,
            there,
            back,
            _device: Arc::clone(&self.device),
        };
        let mut before: Option<Point> = None;
        for launch in launches {
            // Of its own: a driver may look for arguments only when it replays, and find those of the last launch.
            let own = super::lane::kernel(&self.device, self.device.kernels[launch.kernel])?;
            // SAFETY: the caller's.
            let (kernel, items, group) = unsafe { self.prepare(&own, launch)? };
            let (waits, first) = (cl_uint::from(before.is_some()), before.unwrap_or(0));
            let first = if waits > 0 {
                &raw const first
            } else {
                ptr::null()
            };
            let mut point: Point = 0;
            // SAFETY: the buffer is being recorded, its one queue is meant, all arguments are set, and the point
            // is one of the same buffer.
            let status = unsafe {
                (calls.kernel)(
                    handle,
                    ptr::null_mut(),
                    ptr::null(),
                    kernel.get(),
                    1,
                    ptr::null(),
                    &raw const items,
                    &raw const group,
                    waits,
                    first,
                    &raw mut point,
                    ptr::null_mut(),
                )
            };
            self.checked(status, "recording a kernel")?;
            before = Some(point);
            recording.kernels.push(own.0);
        }
        // SAFETY: it is being recorded.
        let status = unsafe { (calls.finalize)(handle) };
        self.checked(status, "recording a batch")?;
        Ok(recording)
    }

    /// # Safety
    /// As the crate's [`crate::Lane::replay`].
    pub(crate) unsafe fn replay(&mut self, recording: &Recording) -> Result<(), Error> {
        let Recording { calls, handle, .. } = recording;
        self.input
            .send(&self.device, &self.queue, recording.there)?;
        self.output.release(&self.device, &self.queue)?;
        // SAFETY: it is recorded, on no way, and of the queue that it was made with; what its kernels reach is
        // the caller's word.
        let status = unsafe {
            let (none, nobody) = (ptr::null_mut(), ptr::null());
            (calls.enqueue)(0, none, *handle, 0, nobody, ptr::null_mut())
        };
        self.checked(status, "launching a command buffer")?;
        self.output
            .fetch(&self.device, &self.queue, recording.back)?;
        let flushed = self.queue.flush();
        flushed.map_err(self.device.failed("sending a batch"))
    }

    fn checked(&self, status: cl_int, call: &'static str) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        Err(self.device.failed(call)(ClError(status)))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: it was made once and goes once.
        let _ = unsafe { (self.calls.release)(self.handle) };
    }
}
