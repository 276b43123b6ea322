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

impl Recording {
    /// Whether the device can record batches.
    pub(crate) fn check(device: &Device) -> Result<(), Missing> {
        Calls::of(device).map(drop)
    }

    /// Records the work of the lane's `run`, for `replay`.
    ///
    /// # Safety
    /// As the crate's [`crate::Lane::record`].
    pub(crate) unsafe fn of(
        lane: &mut Lane,
        launches: &[Launch<'_>],
        there: usize,
        back: usize,
    ) -> Result<Self, Error> {
        let calls = Calls::of(&lane.device)?;
        let queue = lane.queue.get();
        let mut status: cl_int = CL_INVALID_VALUE;
        // SAFETY: one queue, which is there; no properties.
        let handle = unsafe { (calls.create)(1, &raw const queue, ptr::null(), &raw mut status) };
        checked(&lane.device, status, "making a command buffer")?;
        let mut recording = Self {
            kernels: Vec::new(),
            calls,
            handle,
            there,
            back,
            _device: Arc::clone(&lane.device),
        };
        let mut before: Option<Point> = None;
        for launch in launches {
            // Each launch has its own kernel: a driver may read arguments only at replay, and find those of the last launch.
            let own = super::lane::kernel(&lane.device, lane.device.kernels[launch.kernel])?;
            // SAFETY: the caller's.
            let (kernel, items, group) = unsafe { lane.prepare(&own, launch)? };
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
            checked(&lane.device, status, "recording a kernel")?;
            before = Some(point);
            recording.kernels.push(own.0);
        }
        // SAFETY: it is being recorded.
        let status = unsafe { (calls.finalize)(handle) };
        checked(&lane.device, status, "recording a batch")?;
        Ok(recording)
    }

    /// # Safety
    /// As the crate's [`crate::Lane::replay`].
    pub(crate) unsafe fn replay(&self, lane: &mut Lane) -> Result<(), Error> {
        let Self { calls, handle, .. } = self;
        lane.input.send(&lane.device, &lane.queue, self.there)?;
        lane.output.release(&lane.device, &lane.queue)?;
        // SAFETY: it is recorded, on no way, and of the queue that it was made with; what its kernels reach is
        // the caller's word.
        let status = unsafe {
            let (none, nobody) = (ptr::null_mut(), ptr::null());
            (calls.enqueue)(0, none, *handle, 0, nobody, ptr::null_mut())
        };
        checked(&lane.device, status, "launching a command buffer")?;
        lane.output.fetch(&lane.device, &lane.queue, self.back)?;
        let flushed = lane.queue.flush();
        flushed.map_err(lane.device.failed("sending a batch"))
    }
}

fn checked(device: &Device, status: cl_int, call: &'static str) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    Err(device.failed(call)(ClError(status)))
}

impl Calls {
    fn of(device: &Device) -> Result<Self, Missing> {
        let lacks = || {
            let what = format!("{} has no {EXTENSION}", device.name);
            Missing::new(what, "use --launch stream, or another driver")
        };
        if !device
            .extensions
            .split_whitespace()
            .any(|name| name == EXTENSION)
        {
            return Err(lacks());
        }
        Self::find(device.platform.0).ok_or_else(lacks)
    }

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

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: it was made once and goes once.
        let _ = unsafe { (self.calls.release)(self.handle) };
    }
}
